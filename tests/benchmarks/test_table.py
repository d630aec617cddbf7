"""The table of benchmarks/: every row is measured, and judged as it is printed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import report, rows, start, turns
from benchmarks.times import Run, Times, interleaved

ROOT = Path(__file__).parents[2]


def benchmark(*arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_rounds_take_turns():
    calls = []
    runs = {
        name: Run(
            lambda name=name: calls.append(name),
            before=lambda: calls.append("before"),
            after=lambda: calls.append("after"),
        )
        for name in "ab"
    }
    times = interleaved(runs, rounds=2, warm=1)
    assert calls == ["before", "a", "after", "before", "b", "after"] * 3
    assert all(len(t.wall) == len(t.cpu) == 2 for t in times.values())


def test_ratios():
    fast, slow = Times([1.0, 2.0, 6.0], [1.0, 1.0, 1.0]), Times([2.0, 8.0, 6.0], [4.0, 4.0, 4.0])
    assert fast.over(slow) == pytest.approx(
        {"wall_least": 0.5, "wall_middle": 0.5, "cpu_least": 0.25, "cpu_middle": 0.25}
    )
    assert fast.over(slow, count=10, other_count=5)["cpu_least"] == pytest.approx(0.125)


def test_a_figure_is_judged_by_one_clock_and_as_printed():
    figure = rows.Figure("", 0.9, 0.854, 0.85, "cpu")
    assert figure.reached
    assert not rows.Figure("", 0.9, 0.854, 0.85, "cpu", digits=3).reached
    assert not rows.Figure("", 0.9, 0.8, 0.85).reached


def test_every_process_has_a_row():
    for row, processes in rows.PROCESSES.items():
        assert rows.ROWS[row].jobs == ("train",)
        assert len(processes) == len(set(processes))


def test_what_is_missing_is_said(capsys):
    train = {
        "mlp": {"xla": {"wall": [2.0, 3.0], "cpu": [4.0]}, "cpu": {"wall": [4.0], "cpu": [4.0]}}
    }
    report.table([rows.ROWS["steady-cpu"], rows.ROWS["micro"]], {"train": train})
    printed = capsys.readouterr().out.splitlines()
    assert [cell.strip() for cell in printed[-2].split("|")[2:-1]] == [
        "mlp", "0.75", "[0.50]", "1.00", "yes",
    ]  # fmt: skip
    assert "could not be measured" in printed[-1]


def test_ops_and_imports_are_measured(tmp_path):
    file = tmp_path / "out.json"
    done = benchmark("--quick", "--only", "micro,import", "--details", "--json", str(file))
    assert done.returncode == 0, done.stderr
    measured = json.loads(file.read_text())
    assert len(measured["micro"]) == 46
    assert all(row["xla"] > 0 and row["cpu"] > 0 for row in measured["micro"].values())
    assert measured["import"]["wall_least"] > 0
    assert "geometric mean" in done.stdout and "max_pool2d" in done.stdout


def test_unknown_rows_are_refused():
    done = benchmark("--only", "everything")
    assert done.returncode != 0 and "gpt-replay" in done.stderr


def test_processes_take_turns():
    def trainer(device: str) -> turns.Process:
        command = [sys.executable, "-m", "benchmarks.train", "--model", "mlp", "--device", device]
        return turns.Process(command, cwd=ROOT)

    measured = turns.take({"xla": lambda: trainer("xla"), "cpu": lambda: trainer("cpu")}, rounds=2)
    for run in measured.values():
        assert len(run["wall"]) == len(run["cpu"]) == 2 * turns.STEPS["mlp"]
    assert measured["xla"]["losses"] == pytest.approx(measured["cpu"]["losses"], rel=1e-4)


def test_a_process_that_dies_is_an_error():
    command = [sys.executable, "-m", "benchmarks.train", "--model", "none", "--device", "cpu"]
    with pytest.raises(RuntimeError, match=r"benchmarks\.train .* ended with 2"):
        turns.take({"xla": lambda: turns.Process(command, cwd=ROOT)}, rounds=1)


def test_the_second_process_compiles_nothing():
    command = [sys.executable, "-m", "benchmarks.train", "--model", "mlp", "--turns", "0"]
    every_program = {"TORCH_XLA_PERSISTENT_CACHE_MIN_SECONDS": "0"}

    def train(environment: dict[str, str]) -> dict:
        done = subprocess.run(
            [*command, "--device", "xla"],
            cwd=ROOT,
            env={**os.environ, **environment, **every_program},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return json.loads(done.stdout.splitlines()[-1])

    measured = start.second_process(train)
    assert measured["compiles"] == 0
    assert 0 < measured["second_step"] < measured["first_step"]
