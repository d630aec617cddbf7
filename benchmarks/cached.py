"""What `torch_xla.sync()` and replayed steps cost the host, on graphs that are compiled already.

    python -m benchmarks.cached --case step --turns 6

Tiny tensors. CPU time is that of the calling thread: a launch wakes the plugin's threads, which on
a busy machine take the caller's core, and the clock on the wall then tells of them. Each case has a
process of its own, and a turn is several steps in a row, as in training: another case in the same
process, or between two steps, would leave them cold caches and another heap. Prints one JSON
object, times in seconds. Without --turns it takes one for each line that comes in (turns.py).
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable

import torch

from benchmarks import turns
from benchmarks.measure import Device
from benchmarks.models import TRACING, fused_adamw
from benchmarks.times import Run, Times

CHAIN = 5000
ADDS = 1000
WARM = 8  # a replayed step is traced for the first few calls
IN_A_TURN = 10


def chain(device: Device, length: int) -> Callable[[], object]:
    """Of adds and multiplications in turns; no result of it ever is subnormal."""
    start, other = device.randn(4, 4), device.randn(4, 4).sign()

    @torch.no_grad()
    def run() -> torch.Tensor:
        value = start
        for i in range(length):
            value = value + other if i % 2 else value * other
        return value

    return run


def adds(device: Device) -> Callable[[], object]:
    """Dependent additions of two tensors, as the ops of a step are."""
    start, other = device.randn(4, 4), device.randn(4, 4)

    @torch.no_grad()
    def run() -> torch.Tensor:
        value = start
        for _ in range(ADDS):
            value = value + other
        return value

    return run


class Case:
    def __init__(self, device: Device, run: Run) -> None:
        self._device, self._run = device, run

    def first(self) -> dict:
        for _ in range(WARM):
            self._run.time(time.thread_time)
        self._warm = self._device.compiles()[0]
        gc.collect()
        gc.disable()
        return {}

    def turn(self) -> Times:
        return self._run.in_a_row(IN_A_TURN, time.thread_time, warm=2)

    def last(self) -> dict:
        return {"late_compiles": self._device.compiles()[0] - self._warm}


class Replay(Case):
    def __init__(self, device: Device) -> None:
        import torch_xla

        step = TRACING["GPT-12, AdamW"].training_step(device.torch, fused_adamw)
        self._step = torch_xla.compile(step, replay=True)
        super().__init__(device, Run(self._step, after=device.finish))

    def last(self) -> dict:
        if self._step.traced_because:
            raise RuntimeError(f"the last call was traced: {self._step.traced_because}")
        return super().last()


def synced(step: Callable[[Device], Callable[[], object]]) -> Case:
    device = Device("xla")
    return Case(device, Run(device.sync, before=step(device), after=device.finish))


def eager(step: Callable[[Device], Callable[[], object]]) -> Case:
    device = Device("cpu")
    return Case(device, Run(step(device)))


def gpt_step(device: Device) -> Callable[[], object]:
    return TRACING["GPT-12, AdamW"].training_step(device.torch)


CASES: dict[str, Callable[[], Case]] = {
    "chain": lambda: synced(lambda device: chain(device, CHAIN)),
    "adds": lambda: eager(adds),
    "step": lambda: synced(gpt_step),
    "replay": lambda: Replay(Device("xla")),
    "eager step": lambda: eager(gpt_step),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", choices=CASES, required=True)
    parser.add_argument("--turns", type=int)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    case = CASES[arguments.case]()
    if arguments.turns is None:
        turns.serve(case)
    else:
        turns.run(case, arguments.turns)


if __name__ == "__main__":
    main()
