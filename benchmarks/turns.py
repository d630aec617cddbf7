"""Processes that take turns: one is measured while the others sleep.

Noise on the machine then hits all alike, and no process has another's threads or memory in it.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Protocol

from benchmarks.times import Run, Times

MARK = "measured: "

# Steps of a turn of training: in a row, as in training, and a tenth of a second and more of them.
# A process that had slept would begin with cold caches and threads that are far from awake.
STEPS = {"mlp": 8, "gpt-12x256": 2, "resnet18": 2, "gpt2": 1}


class Taker(Protocol):
    """What a process measures."""

    def first(self) -> dict:
        """What comes before the first turn, and what it cost."""

    def turn(self) -> Times:
        """One turn."""

    def last(self) -> dict:
        """What is known after all of them."""


def steps(model: str, step: Callable[[], object]) -> Times:
    """A turn of training."""
    count = STEPS[model]
    return Run(step).in_a_row(count, time.process_time, warm=1 if count > 1 else 0)


def serve(taker: Taker) -> None:
    """Takes a turn for each line that comes in, and prints what was measured."""
    _say(taker.first())
    for _ in sys.stdin:
        _say(dataclasses.asdict(taker.turn()))
    _say(taker.last())


def run(taker: Taker, turns: int) -> None:
    """Takes some turns by itself, and prints what was measured as one JSON object."""
    first, times = taker.first(), Times()
    for _ in range(turns):
        times.add(taker.turn())
    print(json.dumps({**first, **dataclasses.asdict(times), **taker.last()}))


def _say(measured: dict) -> None:
    print(MARK + json.dumps(measured), flush=True)


class Process:
    """A process that waits for its turns."""

    def __init__(self, command: list[str], **options: object) -> None:
        self._command = command
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options
        )
        self.measured: dict = {**self._hear(), "wall": [], "cpu": []}

    def turn(self) -> None:
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        for clock, seconds in self._hear().items():
            self.measured[clock] += seconds

    def finish(self) -> dict:
        self._process.stdin.close()
        self.measured.update(self._hear())
        self._process.wait()
        return self.measured

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def _hear(self) -> dict:
        for line in self._process.stdout:
            if line.startswith(MARK):
                return json.loads(line.removeprefix(MARK))
        raise RuntimeError(f"{' '.join(self._command)} ended with {self._process.wait()}")


def take(starts: dict[str, Callable[[], Process]], rounds: int) -> dict[str, dict]:
    """What each process measured. They start one after another, then each has a turn a round."""
    processes: dict[str, Process] = {}
    try:
        for name, start in starts.items():
            processes[name] = start()
        for _ in range(rounds):
            for process in processes.values():
                process.turn()
        return {name: process.finish() for name, process in processes.items()}
    finally:
        for process in processes.values():
            process.stop()
