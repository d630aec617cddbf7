"""The training benchmark runs, and what it measures is the same training as on CPU eager."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def measure(device: str) -> dict:
    command = [sys.executable, "-m", "benchmarks.train", "--model", "mlp", "--turns", "2"]
    done = subprocess.run(
        [*command, "--device", device], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_mlp():
    xla, cpu = measure("xla"), measure("cpu")
    assert xla["losses"] == pytest.approx(cpu["losses"], rel=1e-4)
    assert 1 <= xla["compiles"] <= 2
    assert xla["late_compiles"] == 0
    assert xla["fallbacks"] == []
    assert xla["peak"] > 0
