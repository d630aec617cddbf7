"""The sharded GPT of examples/ trains alike in every layout."""

import math
import subprocess
import sys
from pathlib import Path

import pytest

# Torch needs jinja2, and that has less to say than torch.
ARGUMENTS = ["--package", "jinja2", "--steps", "3", "--layers", "1"]
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("layout", ["dp", "fsdp", "tp", "fsdp_tp"])
def test_layouts_agree(layout):
    done = subprocess.run(
        [sys.executable, "-m", "examples.spmd_gpt", "--layout", layout, *ARGUMENTS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "programs compiled: 1\n" in done.stdout
    first = float(done.stdout.split("first loss ")[1].split()[0])
    last = float(done.stdout.split("last loss ")[1].split(",")[0])
    assert first == pytest.approx(math.log(128), abs=0.05)
    assert 3.5 < last < first
