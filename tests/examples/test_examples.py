"""The programs of examples/ run on the xla device and reach what they promise."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run_example(name: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", f"examples.{name}", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"examples.{name}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_linear():
    assert "loss before the step" in run_example("linear")


def test_digits_learns_like_cpu_eager(tmp_path):
    # The program itself checks accuracy, compiles and the first losses.
    curves = tmp_path / "digits.png"
    out = run_example("digits", "--plot", str(curves))
    assert out.endswith("OK\n")
    assert "Metric: CompileTime" in out
    assert curves.stat().st_size > 0


def test_gpt_writes():
    out = run_example("gpt", "--steps", "20", "--length", "20")
    assert "Returns a tensor " in out
    # One to sample, and two models: of the prompt, whose tokens the host knows, and of tokens that
    # the device wrote, which the program checks.
    to_write = int(out.split("programs compiled:")[1].split(",")[1].split()[0])
    assert to_write <= 3


@pytest.mark.parametrize("amp", [(), ("--amp",)], ids=["float32", "bfloat16"])
def test_resnet18(amp):
    assert "test accuracy" in run_example("resnet18", "--steps", "4", "--width", "8", *amp)


def test_the_program_that_scripts_start_from(run_python):
    done = run_python(
        """
        import torch, torch_xla.core.xla_model as xm
        device = xm.xla_device()
        model = torch.nn.Linear(128, 64).to(device)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        x = torch.randn(16, 128, device=device)
        before = model.weight.cpu()
        loss = model(x).sum(); loss.backward(); xm.optimizer_step(opt); xm.mark_step()
        assert torch.isfinite(loss).item()
        torch.testing.assert_close(model.weight.cpu(), before - 0.1 * model.weight.grad.cpu())
        """
    )
    assert done.returncode == 0, done.stderr
