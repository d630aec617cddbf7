"""What `torch_xla.sync()` costs on a graph that is compiled already, on tiny tensors.

Prints one JSON object: {name: {"trace": us, "sync": us, "wait": us, "late_compiles": n}}. The host
is busy for trace and sync; wait is what the device still needs then.
"""

from __future__ import annotations

import gc
import json
import statistics
import time
from collections.abc import Callable

import torch

from benchmarks.measure import Device
from benchmarks.models import TRACING

ROUNDS = 30


def chain(device: Device, length: int) -> Callable[[], object]:
    x, y = device.randn(4, 4), device.randn(4, 4) * 1e-3

    def run() -> torch.Tensor:
        value = x
        for i in range(length):
            value = value + y if i % 2 else value * y
        return value

    return run


def updates(device: Device, tensors: int, ops: int) -> Callable[[], object]:
    """Many tensors, each replaced in place by the result of a few ops: many outputs, donated."""
    states = [device.randn(4, 4) for _ in range(tensors)]
    y = device.randn(4, 4) * 1e-3

    def run() -> None:
        for state in states:
            value = state
            for i in range(ops):
                value = value + y if i % 2 else value * y
            state.copy_(value)

    return run


def measure(device: Device, run: Callable[[], object]) -> dict[str, float]:
    for _ in range(4):
        kept = run()
        device.finish()
    before = device.compiles()[0]
    times: dict[str, list[float]] = {"trace": [], "sync": [], "wait": []}
    gc.collect()
    gc.disable()
    for _ in range(ROUNDS):
        marks = [time.perf_counter()]
        kept = run()
        marks.append(time.perf_counter())
        device.sync()
        marks.append(time.perf_counter())
        device.finish()
        marks.append(time.perf_counter())
        for name, begin, end in zip(times, marks, marks[1:], strict=False):
            times[name].append(end - begin)
    gc.enable()
    del kept
    row: dict[str, float] = {name: statistics.median(s) * 1e6 for name, s in times.items()}
    row["late_compiles"] = device.compiles()[0] - before
    return row


def main() -> None:
    torch.set_num_threads(1)
    device = Device("xla")
    one = device.randn(4, 4)
    runs: dict[str, Callable[[], object]] = {
        "nothing": lambda: None,
        "one op": lambda: one + 1,
        "chain of 100": chain(device, 100),
        "chain of 1000": chain(device, 1000),
        "chain of 5000": chain(device, 5000),
        "500 outputs, 5000 nodes": updates(device, 500, 9),
    }
    with torch.no_grad():
        result = {name: measure(device, run) for name, run in runs.items()}
    for name, job in TRACING.items():
        result[name] = measure(device, job.training_step(device.torch))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
