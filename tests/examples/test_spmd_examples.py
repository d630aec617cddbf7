"""The sharded GPT of examples/ trains alike in every layout."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("layout", ["dp", "fsdp", "tp", "fsdp_tp"])
def test_layouts_agree(layout):
    done = subprocess.run(
        [sys.executable, "-m", "examples.spmd_gpt", "--layout", layout, "--steps", "3"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "programs compiled: 1\n" in done.stdout
    first = float(done.stdout.split("first loss ")[1].split()[0])
    last = float(done.stdout.split("last loss ")[1].split(",")[0])
    assert first == pytest.approx(4.8477, abs=0.02)
    assert 3.5 < last < first
