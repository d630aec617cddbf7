"""All measurements, each in a process of its own, as tables of ratios.

python -m benchmarks [--parts trace,cached,train] [--models mlp,resnet18] [--rounds 1] [--json FILE]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks import measure, models

ROOT = Path(__file__).parent.parent
PARTS = ("trace", "cached", "train")
JAX_MODELS = ("mlp", "gpt-12x256", "gpt2")


def worker(module: str, *arguments: str) -> dict | None:
    """The JSON that `python -m benchmarks.<module>` prints last; None, with its output, if none."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
    print(f"  {module} {' '.join(arguments)}", file=sys.stderr, flush=True)
    # What earlier runs compiled is compiled again.
    environment = {"PJRT_DEVICE": "CPU", **os.environ, "TORCH_XLA_PERSISTENT_CACHE": "0"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(f"{' '.join(command)} failed:\n{done.stderr}", file=sys.stderr)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    print(f"\n## {title}\n")
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]

    def line(cells: list[str]) -> str:
        first, *others = zip(cells, widths, strict=True)
        padded = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
        return "| " + " | ".join(padded) + " |"

    print(line(columns))
    print("|" + "|".join("-" * (width + 2) for width in widths) + "|")
    print("\n".join(map(line, rows)))


def report_trace(result: dict) -> None:
    ratios = [row["ratio"] for row in result["ops"].values()]
    table(
        "Recording an op, microseconds (CPU eager computes it)",
        ["op", "xla", "cpu eager", "ratio"],
        [
            *(
                [name, f"{row['xla']:.2f}", f"{row['cpu']:.2f}", f"{row['ratio']:.2f}"]
                for name, row in result["ops"].items()
            ),
            ["geometric mean", "", "", f"{math.exp(statistics.mean(map(math.log, ratios))):.2f}"],
        ],
    )
    table(
        "Recording a training step on tiny tensors, milliseconds",
        ["step", "xla", "cpu eager", "ratio"],
        [
            [name, f"{row['xla'] / 1e3:.2f}", f"{row['cpu'] / 1e3:.2f}", f"{row['ratio']:.2f}"]
            for name, row in result["steps"].items()
        ],
    )
    if result["fallbacks"]:
        print(f"\nRan on the host: {', '.join(result['fallbacks'])}")


def report_cached(result: dict) -> None:
    table(
        "sync() on a compiled graph, microseconds",
        ["graph", "trace", "sync", "wait", "late compiles"],
        [
            [
                name,
                *(f"{row[column]:.0f}" for column in ("trace", "sync", "wait")),
                str(row["late_compiles"]),
            ]
            for name, row in result.items()
        ],
    )


def report_train(result: dict[str, dict[str, list[dict]]]) -> None:
    """`result[model][device]` has one measurement for each round."""

    def middle(runs: list[dict] | None, key: str) -> float | None:
        return statistics.median(run[key] for run in runs) if runs else None

    def cell(value: float | None, form: Callable[[float], str]) -> str:
        return "-" if value is None else form(value)

    def over(a: float | None, b: float | None) -> str:
        return "-" if a is None or b is None else f"{a / b:.2f}"

    names = ("xla", "cpu", "jax")
    columns = ["model", *names, "xla/cpu", "xla/jax"]
    for title, key, form in (
        ("Training step, milliseconds", "step", lambda seconds: f"{seconds * 1e3:.1f}"),
        ("Peak memory of steady steps, MB", "peak", lambda mb: f"{mb:.0f}"),
        ("Peak memory while compiling, MB", "compiling_peak", lambda mb: f"{mb:.0f}"),
    ):
        rows = []
        for model, devices in result.items():
            values = {name: middle(devices.get(name), key) for name in names}
            cells = [cell(values[name], form) for name in names]
            ratios = [over(values["xla"], values[name]) for name in ("cpu", "jax")]
            rows.append([model, *cells, *ratios])
        table(title, columns, rows)

    rows = []
    for model, devices in result.items():
        xla, jax = devices.get("xla"), devices.get("jax")
        difference = None
        if xla and devices.get("cpu"):
            pairs = zip(xla[0]["losses"], devices["cpu"][0]["losses"], strict=True)
            difference = max(abs(a - b) / abs(b) for a, b in pairs)
        rows.append(
            [
                model,
                cell(middle(xla, "compiles"), lambda n: f"{n:.0f}"),
                cell(middle(xla, "late_compiles"), lambda n: f"{n:.0f}"),
                cell(middle(xla, "compile"), lambda s: f"{s:.2f}"),
                cell(middle(jax, "compile"), lambda s: f"{s:.2f}"),
                cell(difference, lambda d: f"{d:.1e}"),
                ", ".join(xla[0]["fallbacks"]) if xla else "-",
            ]
        )
    columns = ["model", "compiles", "late", "xla s", "jax s", "losses differ by", "on the host"]
    table("Compiling, and agreement with CPU eager (relative)", columns, rows)


def train(chosen: list[str], rounds: int) -> dict[str, dict[str, list[dict]]]:
    has_jax = importlib.util.find_spec("jax") is not None
    result: dict[str, dict[str, list[dict]]] = {model: {} for model in chosen}
    for model in chosen:
        for _ in range(rounds):  # devices take turns
            measured = {
                name: worker("train", "--model", model, "--device", name) for name in ("xla", "cpu")
            }
            if has_jax and model in JAX_MODELS:
                measured["jax"] = worker("train_jax", "--model", model)
            for name, run in measured.items():
                if run:
                    result[model].setdefault(name, []).append(run)
    return result


def listed(allowed: tuple[str, ...]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        names = text.split(",")
        if unknown := set(names) - set(allowed):
            raise argparse.ArgumentTypeError(f"{sorted(unknown)} not among {list(allowed)}")
        return names

    return parse


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", type=listed(PARTS), default=list(PARTS))
    parser.add_argument(
        "--models", type=listed(tuple(models.TRAINING)), default=list(models.TRAINING)
    )
    parser.add_argument("--rounds", type=int, default=1, help="of training measurements")
    parser.add_argument("--json", type=Path, help="also write everything measured there")
    arguments = parser.parse_args()

    print(measure.machine())
    everything: dict[str, dict | None] = {}
    reports = {"trace": report_trace, "cached": report_cached, "train": report_train}
    for part in arguments.parts:
        if part == "train":
            everything[part] = train(arguments.models, arguments.rounds)
        else:
            everything[part] = worker(part)
        if everything[part]:
            reports[part](everything[part])
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(everything, indent=1))
    if not all(everything.values()):
        sys.exit("some measurements failed, see above")


if __name__ == "__main__":
    main()
