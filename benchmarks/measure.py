"""Devices and clocks for the benchmarks."""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable, Iterable

import torch

from examples import common


class Device:
    """A device by name ("xla" or "cpu") with the few things a benchmark does to one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.torch = common.open_device(name)

    def randn(self, *sizes: int) -> torch.Tensor:
        return torch.randn(*sizes).to(self.torch)

    def sync(self) -> None:
        common.end_step(self.torch)

    def finish(self) -> None:
        """Syncs, and waits until everything is computed."""
        common.end_step(self.torch)
        common.wait(self.torch)

    def compiles(self) -> tuple[int, float]:
        """Programs compiled so far, and the seconds that took."""
        if self.name != "xla":
            return 0, 0.0
        import torch_xla.debug.metrics as met

        data = met.metric_data("CompileTime")
        return (data[0], data[1] / 1e9) if data else (0, 0.0)

    def fallbacks(self) -> list[str]:
        """Names of the ops that ran on the host."""
        if self.name != "xla":
            return []
        import torch_xla.debug.metrics as met

        return sorted(met.executed_fallback_ops())


def interleaved(
    runs: dict[str, Callable[[], object]],
    rounds: int,
    after: Callable[[str], object] | None = None,
    warm: int = 2,
) -> dict[str, list[float]]:
    """Seconds of each run in each round, the runs taking turns so that noise hits all alike.

    `after(name)` cleans up behind a run, untimed. The first `warm` rounds are not counted. The
    garbage collector runs once and then rests: a collection for each round would leave cold caches.
    """
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    try:
        for turn in range(rounds + warm):
            if turn == warm:
                gc.collect()
                gc.disable()
            for name, run in runs.items():
                begin = time.perf_counter()
                kept = run()
                taken = time.perf_counter() - begin
                del kept
                if after:
                    after(name)
                if turn >= warm:
                    seconds[name].append(taken)
    finally:
        gc.enable()
    return seconds


def median_ratio(a: Iterable[float], b: Iterable[float]) -> float:
    """Median of a/b over rounds measured side by side."""
    return statistics.median(x / y for x, y in zip(a, b, strict=True))


def machine() -> str:
    """One line about where this ran."""
    load = os.getloadavg()[0]
    return f"torch {torch.__version__}, {os.cpu_count()} CPUs, load {load:.1f}"
