"""Measures what docs/performance.md is about, and prints it as one table of ratios.

python -m benchmarks [--only ROW,...] [--quick] [--details] [--json FILE]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Container
from functools import partial
from pathlib import Path

from benchmarks import measure, report, start, turns
from benchmarks.cached import CASES
from benchmarks.models import TRAINING
from benchmarks.rows import LARGE, PROCESSES, ROWS

ROOT = Path(__file__).parent.parent
# What --quick does without: GPT-2 small and ResNet-18.
LARGE_ROWS = ("memory", "first-step", "second-process")
SMALL_MODELS = ("mlp", "gpt-12x256")


def environment(**more: str) -> dict[str, str]:
    # What earlier runs compiled is compiled again.
    return {"PJRT_DEVICE": "CPU", **os.environ, "TORCH_XLA_PERSISTENT_CACHE": "0", **more}


def command(module: str, *arguments: str) -> list[str]:
    print(f"  {module} {' '.join(arguments)}", file=sys.stderr, flush=True)
    return [sys.executable, "-m", f"benchmarks.{module}", *arguments]


def worker(module: str, *arguments: str, **more: str) -> dict:
    """The JSON that `python -m benchmarks.<module>` prints last."""
    done = subprocess.run(
        command(module, *arguments),
        cwd=ROOT,
        env=environment(**more),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def training(model: str, device: str) -> turns.Process:
    if device == "jax":
        line = command("train_jax", "--model", model)
    else:
        line = command("train", "--model", model, "--device", device)
    return turns.Process(line, cwd=ROOT, env=environment())


def train(chosen: list[str], rounds: int, models: Container[str]) -> dict[str, dict[str, dict]]:
    """What training measured: by model, by device."""
    wanted = dict.fromkeys(pair for row in chosen for pair in PROCESSES.get(row, ()))
    has_jax = importlib.util.find_spec("jax") is not None
    if not has_jax:
        print("jax is not installed: nothing is compared with it", file=sys.stderr)
    starts: dict[str, dict[str, Callable[[], turns.Process]]] = {}
    for model, device in wanted:
        if model in models and (has_jax or device != "jax"):
            starts.setdefault(model, {})[device] = partial(training, model, device)
    return {model: turns.take(processes, rounds) for model, processes in starts.items()}


def cached(rounds: int) -> dict[str, dict]:
    """What each case of cached.py measured."""

    def process(case: str) -> turns.Process:
        return turns.Process(command("cached", "--case", case), cwd=ROOT, env=environment())

    return turns.take({case: partial(process, case) for case in CASES}, rounds)


def by_devices(rounds: int) -> dict[str, dict]:
    """What spmd.py measured, by the number of devices."""

    def process(devices: str) -> turns.Process:
        more = environment(CPU_NUM_DEVICES=devices)
        return turns.Process(command("spmd"), cwd=ROOT, env=more)

    return turns.take({count: partial(process, count) for count in ("1", "8")}, rounds)


def cached_training(more: dict[str, str]) -> dict:
    return worker("train", "--model", LARGE, "--device", "xla", "--turns", "1", **more)


def listed(text: str) -> list[str]:
    names = text.split(",")
    if unknown := set(names) - set(ROWS):
        raise argparse.ArgumentTypeError(f"{sorted(unknown)} not among {list(ROWS)}")
    return names


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", type=listed, default=list(ROWS), help="rows: " + ", ".join(ROWS))
    parser.add_argument("--quick", action="store_true", help="fewer rounds, no large models")
    parser.add_argument("--details", action="store_true", help="also what the ratios are made of")
    parser.add_argument("--json", type=Path, help="write everything measured there")
    arguments = parser.parse_args()
    chosen, quick = arguments.only, arguments.quick
    if quick:
        chosen = [row for row in chosen if row not in LARGE_ROWS]

    jobs: dict[str, Callable[[], dict]] = {
        "micro": lambda: worker("micro", "--rounds", "11" if quick else "31"),
        "trace": lambda: worker("trace", "--rounds", "11" if quick else "31"),
        "cached": lambda: cached(2 if quick else 6),
        "train": lambda: train(chosen, 5 if quick else 12, SMALL_MODELS if quick else TRAINING),
        "devices": lambda: by_devices(2 if quick else 6),
        "second process": lambda: start.second_process(cached_training),
        "import": lambda: start.imports(3 if quick else 9),
    }
    measured, failed = {}, []
    print(measure.machine())
    needed = dict.fromkeys(job for row in chosen for job in ROWS[row].jobs)
    for job in needed:
        try:
            measured[job] = jobs[job]()
        except (subprocess.CalledProcessError, RuntimeError) as error:
            print(error, file=sys.stderr)
            failed.append(job)
    report.table([ROWS[row] for row in chosen], measured)
    if arguments.details:
        report.details(measured)
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(measured, indent=1))
    if failed:
        sys.exit(f"could not be measured: {', '.join(failed)}")


if __name__ == "__main__":
    main()
