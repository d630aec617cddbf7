"""One model on one device: compiling, the steady step and peak memory. One process a measurement.

    python -m benchmarks.train --model gpt2 --device xla

Prints one JSON object; times in seconds, memory in MB of resident memory.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time

import torch

from benchmarks.measure import Device
from benchmarks.memory import peak_memory, reset_peak_memory
from benchmarks.models import TRAINING


def measure(model: str, name: str, steps: int) -> dict:
    device = Device(name)
    step = TRAINING[model].training_step(device.torch)
    device.finish()
    before = device.compiles()

    reset_peak_memory()
    begin = time.perf_counter()
    losses = []
    for _ in range(3):  # the optimizer's state appears in the first: a second program
        losses.append(step())
        device.finish()
    first_steps = time.perf_counter() - begin
    compiling_peak = peak_memory()
    warm = device.compiles()

    gc.collect()
    reset_peak_memory()
    taken, traced = [], []
    for _ in range(steps):
        begin = time.perf_counter()
        losses.append(step())
        traced.append(time.perf_counter() - begin)
        device.finish()
        taken.append(time.perf_counter() - begin)
    return {
        "step": statistics.median(taken),
        "trace": statistics.median(traced),
        "first_steps": first_steps,
        "compiles": warm[0] - before[0],
        "compile": warm[1] - before[1],
        "late_compiles": device.compiles()[0] - warm[0],
        "peak": peak_memory(),
        "compiling_peak": compiling_peak,
        "losses": [loss.item() for loss in losses],
        "fallbacks": device.fallbacks(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=TRAINING, required=True)
    parser.add_argument("--device", choices=("xla", "cpu"), required=True)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(json.dumps(measure(arguments.model, arguments.device, arguments.steps)))


if __name__ == "__main__":
    main()
