"""One model on one device: the first steps, compilation included, steady steps, and peak memory.

    python -m benchmarks.train --model gpt2 --device xla --turns 10

Prints one JSON object; times in seconds, memory in MB of resident memory. Without --turns it takes
one for each line that comes in (turns.py).
"""

from __future__ import annotations

import argparse
import gc
import time

import torch

from benchmarks import turns
from benchmarks.measure import Device
from benchmarks.memory import peak_memory, reset_peak_memory
from benchmarks.models import TRAINING
from benchmarks.times import Times

FIRST_STEPS = 3


class TorchTrainer:
    def __init__(self, model: str, device: str) -> None:
        self._model = model
        self._device = Device(device)
        self._step = TRAINING[model].training_step(self._device.torch)
        self._device.finish()
        self._before = self._device.compiles()
        self._losses: list[torch.Tensor] = []

    def first(self) -> dict:
        reset_peak_memory()
        begin = time.perf_counter()
        self._losses.append(self._step())
        self._device.sync()
        first_launch = time.perf_counter() - begin
        self._device.finish()
        first_step = time.perf_counter() - begin
        for _ in range(FIRST_STEPS - 1):
            self.step()
        compiling_peak = peak_memory()
        self._warm = self._device.compiles()
        gc.collect()
        reset_peak_memory()
        return {
            "first_launch": first_launch,
            "first_step": first_step,
            "compiles": self._warm[0] - self._before[0],
            "compile": self._warm[1] - self._before[1],
            "compiling_peak": compiling_peak,
        }

    def step(self) -> None:
        self._losses.append(self._step())
        self._device.finish()

    def turn(self) -> Times:
        return turns.steps(self._model, self.step)

    def last(self) -> dict:
        return {
            "peak": peak_memory(),
            "late_compiles": self._device.compiles()[0] - self._warm[0],
            "losses": [loss.item() for loss in self._losses],
            "fallbacks": self._device.fallbacks(),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=TRAINING, required=True)
    parser.add_argument("--device", choices=("xla", "cpu"), required=True)
    parser.add_argument("--turns", type=int)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    trainer = TorchTrainer(arguments.model, arguments.device)
    if arguments.turns is None:
        turns.serve(trainer)
    else:
        turns.run(trainer, arguments.turns)


if __name__ == "__main__":
    main()
