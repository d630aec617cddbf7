"""A warning where an operation makes a large tensor whole on each device."""

import warnings

import pytest
import torch
from torch import nn

import torch_xla
import torch_xla.distributed.spmd as xs
from torch_xla._extension import _XLAC

MESH = xs.Mesh(range(8), (2, 4), ("data", "model"))
ROWS = xs.Mesh(range(8), (8,), ("data",))


@pytest.fixture(autouse=True)
def small_is_large():
    _XLAC._set_replication_warning(64 * 64 * 4)
    yield
    _XLAC._set_replication_warning(64 << 20)


def warned(compute):
    """What is said while a program is made and run."""
    torch_xla.sync()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kept = compute()
        torch_xla.sync()
    del kept
    return [str(w.message) for w in caught if "whole on each device" in str(w.message)]


def cut(shape, spec, mesh=MESH):
    return xs.mark_sharding(torch.randn(shape).to("xla"), mesh, spec)


def test_sorting_along_what_is_cut():
    x = cut((64, 512), (None, ("data", "model")))
    (message,) = warned(lambda: x.sort(dim=1))
    assert "aten::sort" in message and "test_spmd_replication.py" in message
    assert "0.1 MiB" in message and "TORCH_XLA_WARN_REPLICATED_MIB" in message


def test_once_for_a_program():
    x = cut((64, 520), (None, ("data", "model")))
    assert len(warned(lambda: x.sort(dim=1))) == 1
    assert warned(lambda: x.sort(dim=1)) == []


def test_working_along_what_is_whole():
    x = cut((64, 512), ("data", None), ROWS)
    assert warned(lambda: x.softmax(dim=1).cumsum(dim=1)) == []


def test_what_was_computed_in_parts():
    x = cut((64, 512), (None, "data"), ROWS)

    def gathered():
        y = torch.tanh(x)
        return xs.mark_sharding_with_gradients(y.t() @ y, ROWS, ("data", None))

    (message,) = warned(gathered)
    assert "aten::" in message and "in gathered" not in message


def test_along_one_axis_of_the_mesh():
    x = cut((64, 512), (None, "model"))
    (message,) = warned(lambda: x.sort(dim=1))
    assert "aten::sort" in message


def test_small_tensors():
    _XLAC._set_replication_warning(1 << 30)
    x = cut((64, 528), (None, ("data", "model")))
    assert warned(lambda: x.sort(dim=1)) == []
    _XLAC._set_replication_warning(0)
    x = cut((64, 536), (None, ("data", "model")))
    assert warned(lambda: x.sort(dim=1)) == []


def test_what_was_asked_for():
    x = cut((64, 512), ("data", None), ROWS)
    y = warned(lambda: xs.mark_sharding_with_gradients(x * 2, ROWS, (None, None)))
    assert y == []


def test_weights_are_gathered_for_a_layer():
    model = nn.Linear(512, 256, bias=False).to("xla")
    xs.mark_sharding(model.weight, ROWS, ("data", None))
    x = cut((8, 512), ("data", None), ROWS)

    def step():
        y = xs.mark_sharding_with_gradients(model(x), ROWS, ("data", None))
        y.pow(2).sum().backward()
        return y

    assert warned(step) == []
