"""XLA puts in the transfers that a layout calls for, and the table names them."""

import collections

import pytest
import torch
from torch import nn

import torch_xla
import torch_xla.distributed.spmd as xs
from torch_xla.debug import collectives

AXES, SHAPE = ("data", "model"), (4, 2)
MESH = xs.Mesh(range(8), SHAPE, AXES)


def one_step(cuts, batch, mark_activations=()):
    """Trains an MLP for one step; the collectives by kind and mesh axes, with their bytes.

    `mark_activations`: what the layers of these numbers give lies by batch.
    """
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128, bias=False), nn.GELU(), nn.Linear(128, 32, bias=False))
    model = model.to("xla")
    for layer, cut in cuts.items():
        xs.mark_sharding(model[layer].weight, MESH, cut)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(16, 64).to("xla")
    xs.mark_sharding(x, MESH, (batch, None))
    y = x
    for number, layer in enumerate(model):
        y = layer(y)
        if number in mark_activations:
            y = xs.mark_sharding_with_gradients(y, MESH, (batch, None))
    y.pow(2).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    torch_xla.sync()
    found = collections.defaultdict(list)
    for one in collectives.collectives():
        found[one.kind, one.axes(AXES, SHAPE)].append(one.bytes)
    return dict(found)


WEIGHTS = (64 * 128 + 128 * 32) * 4  # bytes


def test_data_parallel_sums_gradients():
    assert one_step({}, ("data", "model")) == {("all-reduce", ("data", "model")): [WEIGHTS]}


def test_fsdp_gathers_weights_and_sums_gradients():
    found = one_step({0: ("data", None), 2: ("data", None)}, "data", mark_activations=(0, 1, 2))
    # XLA for CPU makes a reduce-scatter of an all-reduce; tests/preflight sees one for TPU.
    assert found == {
        ("all-gather", ("data",)): [64 * 128 * 4, 128 * 32 * 4],  # each weight once
        ("all-reduce", ("data",)): [WEIGHTS],  # all gradients at once
    }


def test_tensor_parallel_sums_activations():
    found = one_step({0: ("model", None), 2: (None, "model")}, None)
    assert found == {("all-reduce", ("model",)): [16 * 32 * 4]}  # the output, once


def test_fsdp_beside_tensor_parallel_does_both():
    cuts = {0: ("model", "data"), 2: ("data", "model")}
    found = one_step(cuts, "data", mark_activations=(2,))
    # XLA for CPU wants the second weight in two orders of memory, and gathers it for each.
    assert set(found.pop(("all-gather", ("data",)))) == {64 * 128 * 4 // 2, 128 * 32 * 4 // 2}
    assert found == {
        ("all-reduce", ("model",)): [16 // 4 * 32 * 4],
        ("all-reduce", ("data",)): [WEIGHTS // 2],
    }


def test_whole_on_each_device_needs_none():
    assert one_step({}, None) == {}
    assert collectives.report(AXES, SHAPE) == "no collectives\n"


def test_the_table_names_axes_and_lines():
    one_step({0: ("model", None), 2: (None, "model")}, "data")
    header, *rows = collectives.report(AXES, SHAPE).splitlines()
    assert header.split() == ["collective", "count", "bytes", "along", "for"]
    assert any("all-reduce" in row and "model" in row and "linear" in row for row in rows)
    assert any("test_spmd_collectives.py:" in row for row in rows)
    assert any("{" in row for row in collectives.report().splitlines()[1:])


def test_memory_is_that_of_each_device():
    one_step({0: ("data", "model"), 2: ("data", "model")}, "data", mark_activations=(0, 1, 2))
    now = collectives.memory()
    batch, scalars = 16 * 64 * 4 // 4, 8
    assert WEIGHTS // 8 + batch <= now["arguments"] <= WEIGHTS // 8 + batch + scalars
    assert now["shared"] == WEIGHTS // 8
    assert set(now) == {"arguments", "results", "shared", "temporaries", "code"}


def test_what_is_no_program():
    with pytest.raises(IndexError):
        collectives.collectives(b"\x80")
