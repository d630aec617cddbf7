"""Clocks, and runs that take turns in one process. Imports little, to add no memory."""

from __future__ import annotations

import dataclasses
import gc
import statistics
import time
from collections.abc import Callable


def nothing() -> None:
    pass


@dataclasses.dataclass
class Run:
    """Something to time. `before` and `after` it are not timed."""

    timed: Callable[[], object]
    before: Callable[[], object] = nothing
    after: Callable[[], object] = nothing

    def time(self, cpu_clock: Callable[[], float]) -> Times:
        """`cpu_clock`: `time.thread_time` for what happens in the calling thread alone, else
        `time.process_time`."""
        held = self.before()
        cpu, begin = cpu_clock(), time.perf_counter()
        made = self.timed()
        wall, cpu = time.perf_counter() - begin, cpu_clock() - cpu
        del held, made
        self.after()
        return Times([wall], [cpu])

    def in_a_row(self, count: int, cpu_clock: Callable[[], float], warm: int) -> Times:
        """`count` times, after `warm` that are not counted: the first finds cold caches."""
        times = Times()
        for i in range(-warm, count):
            taken = self.time(cpu_clock)
            if i >= 0:
                times.add(taken)
        return times


@dataclasses.dataclass
class Times:
    """Seconds of each round: by the clock on the wall, and of CPU time."""

    wall: list[float] = dataclasses.field(default_factory=list)
    cpu: list[float] = dataclasses.field(default_factory=list)

    def add(self, other: Times) -> None:
        self.wall += other.wall
        self.cpu += other.cpu

    def over(self, other: Times, count: int = 1, other_count: int = 1) -> dict[str, float]:
        """Ratios to `other`, each divided by how many things it did.

        By either clock, of the smallest of all rounds and of the round in the middle. Rounds of the
        two were side by side, so the one in the middle is that of the ratios.
        """
        scale = other_count / count
        result = {}
        for clock in ("wall", "cpu"):
            mine, others = getattr(self, clock), getattr(other, clock)
            ratios = [a / b for a, b in zip(mine, others, strict=True)]
            result[f"{clock}_least"] = min(mine) / min(others) * scale
            result[f"{clock}_middle"] = statistics.median(ratios) * scale
        return result


def interleaved(
    runs: dict[str, Run],
    rounds: int,
    cpu_clock: Callable[[], float] = time.thread_time,
    warm: int = 2,
) -> dict[str, Times]:
    """Times of each run in each round, the runs taking turns so that noise hits all alike.

    The first `warm` rounds are not counted. The garbage collector runs once and then rests: a
    collection for each round would leave cold caches.
    """
    times = {name: Times() for name in runs}
    try:
        for turn in range(rounds + warm):
            if turn == warm:
                gc.collect()
                gc.disable()
            for name, run in runs.items():
                taken = run.time(cpu_clock)
                if turn >= warm:
                    times[name].add(taken)
    finally:
        gc.enable()
    return times
