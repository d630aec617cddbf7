"""Why a line compiled again: what the metrics report and the warning say."""

from __future__ import annotations

import pytest
import torch

import torch_xla
import torch_xla.debug.metrics as met
from torch_xla._extension import _XLAC


@pytest.fixture(autouse=True)
def fresh(metrics):
    _XLAC._clear_cache()
    yield
    _XLAC._set_recompile_warning(8)


def steps(device, inputs, body):
    for given in inputs:
        result = body(given)
        torch_xla.sync()
        del result


def line_report() -> str:
    """The report's paragraph on `steps`."""
    start = met.metrics_report().index("Recompiled: steps@test_recompiles.py")
    return met.metrics_report()[start:]


def test_one_program_is_not_mentioned(device):
    steps(device, [torch.ones(4).to(device)] * 3, lambda x: x * 2)
    assert "Recompiled" not in met.metrics_report()


def test_shape_of_an_input(device):
    batches = [torch.ones(n, 3).to(device) for n in (8, 8, 5)]
    steps(device, batches, lambda x: x.sin() + 1)
    report = line_report()
    assert "Programs: 2" in report
    assert "an input of aten::sin at <lambda>@test_recompiles.py:" in report
    assert "is f32[5,3] and was f32[8,3]" in report
    assert "drop the last batch" in report


def test_dtype_of_an_input(device):
    batches = [torch.ones(4, dtype=dtype).to(device) for dtype in (torch.float32, torch.float64)]
    steps(device, batches, lambda x: x.sin())
    assert "is f64[4] and was f32[4]" in line_report()


def test_a_number_that_decides_a_shape(device):
    x = torch.ones(8, device=device)
    torch_xla.sync()
    steps(device, [2, 3], lambda n: x.cos()[:n] * 2)
    assert "Keep the shapes" in line_report() or "has the attributes" in line_report()


def test_another_path(device):
    x = torch.ones(8, device=device)
    torch_xla.sync()
    steps(device, [True, False], lambda flag: x.cos() if flag else x.sin())
    assert "aten::sin at <lambda>@test_recompiles.py" in line_report()
    assert "stands where aten::cos" in line_report()


def test_other_tensors_alive(device):
    x = torch.ones(8, device=device)
    torch_xla.sync()
    kept = []

    def body(keep):
        y = x.cos()
        if keep:
            kept.append(y)
        return y + 1

    steps(device, [False, True], body)
    assert "it has 2 results and had 1" in line_report()


def test_the_nearest_program_is_compared(device):
    x = torch.ones(8, device=device)
    torch_xla.sync()

    def body(kind):
        if kind == "long":
            return (x.cos() * 2).exp().sin()
        return x.tanh() if kind == "short" else (x.cos() * 2).exp().cos()

    steps(device, ["long", "short", "like long"], body)
    assert "aten::cos" in line_report() and "stands where aten::sin" in line_report()


def test_changing_numbers_do_not_count(device):
    x = torch.ones(8, device=device)
    torch_xla.sync()
    steps(device, [0.1, 0.2, 0.3], lambda lr: x * lr)
    assert "Recompiled" not in met.metrics_report()


def test_warning_once_with_the_line(device, recwarn):
    _XLAC._set_recompile_warning(3)
    batches = [torch.ones(n).to(device) for n in range(2, 8)]
    steps(device, batches, lambda x: x.sin())
    messages = [str(w.message) for w in recwarn if "compiled its program" in str(w.message)]
    assert len(messages) == 1
    assert "steps@test_recompiles.py" in messages[0] and "number 3" in messages[0]
    assert "is f32[4] and was f32[3]" in messages[0]


def test_reads_warn_too(device, recwarn):
    _XLAC._set_recompile_warning(2)
    for n in (2, 3):
        torch.ones(n).to(device).sin().sum().item()
    assert any("compiled its program" in str(w.message) for w in recwarn)


def test_no_warning_when_turned_off(device, recwarn):
    _XLAC._set_recompile_warning(0)
    steps(device, [torch.ones(n).to(device) for n in range(2, 14)], lambda x: x.sin())
    assert not any("compiled its program" in str(w.message) for w in recwarn)
