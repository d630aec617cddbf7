"""The devices that are measured."""

from __future__ import annotations

import os

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


def machine() -> str:
    """One line about where this ran."""
    load = os.getloadavg()[0]
    return f"torch {torch.__version__}, {os.cpu_count()} CPUs, load {load:.1f}"
