"""What tracing costs the host: a chain of ops, and training steps on tiny tensors.

Nothing runs on the xla device in the timed part. Both devices take turns in one process, which is
timed as a whole: autograd runs a device's backward pass in a thread of its own. Prints one JSON
object, {name: {"xla": microseconds, "cpu": microseconds, ratios of Times.over()}}.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch

from benchmarks.measure import Device
from benchmarks.models import TRACING
from benchmarks.times import Run, Times, interleaved

CHAIN = 2000


def chain(device: Device, gradient: bool) -> Callable[[], object]:
    start, other = device.randn(4, 4).requires_grad_(gradient), device.randn(4, 4)

    def run() -> torch.Tensor:
        value = start
        for _ in range(CHAIN):
            value = value + other
        return value

    return run if gradient else torch.no_grad()(run)


def row(times: dict[str, Times], count: int = 1) -> dict[str, float]:
    return {
        **{name: statistics.median(t.wall) / count * 1e6 for name, t in times.items()},
        **times["xla"].over(times["cpu"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=31)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    devices = {name: Device(name) for name in ("xla", "cpu")}

    result = {}
    for name, gradient in (("chain", False), ("chain, gradient", True)):
        runs = {key: Run(chain(device, gradient)) for key, device in devices.items()}
        devices["xla"].finish()
        result[name] = row(interleaved(runs, arguments.rounds, time.process_time), CHAIN)
    for name, job in TRACING.items():
        # A step's results feed the next one, so it has to be run, outside the timed part.
        runs = {
            key: Run(job.training_step(device.torch), after=device.finish)
            for key, device in devices.items()
        }
        result[name] = row(interleaved(runs, arguments.rounds, time.process_time, warm=3))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
