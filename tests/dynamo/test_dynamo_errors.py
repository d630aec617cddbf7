"""torch.compile(backend="openxla"): errors, and what is registered with Dynamo."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from compiling import assert_same, batch, launches
from torch import nn

import torch_xla

# --- Errors ---


def test_errors_are_those_of_torch(device):
    def f(x):
        return torch.linalg.cholesky(x - 100 * torch.eye(3, device=x.device))

    x = torch.eye(3)
    with pytest.raises(Exception) as wanted:
        f(x)
    compiled = torch.compile(f, backend="openxla")
    for _ in range(2):
        with pytest.raises(type(wanted.value)):
            compiled(x.to(device)).cpu()
    # Nothing is left behind.
    torch_xla.sync()
    assert (x.to(device) + 1).sum().item() == 12


OUT_OF_RANGE = [
    (lambda table, i: table[i], 3),
    (lambda table, i: F.embedding(i, table), 3),
    (lambda table, i: F.cross_entropy(table[:2], i), 4),
    (lambda table, i: table.gather(0, i.unsqueeze(1)), -1),
]


@pytest.mark.parametrize("f, wrong", OUT_OF_RANGE, ids=["index", "embedding", "label", "gather"])
def test_indices_out_of_range_raise_at_the_call(device, metrics, f, wrong):
    compiled = torch.compile(f, backend="openxla")
    table = batch()
    good, bad = torch.tensor([0, 2]), torch.tensor([1, wrong])
    with pytest.raises((IndexError, RuntimeError)) as expected:
        f(table, bad)
    for index in (good, good.flip(0)):
        assert_same(compiled(table.to(device), index.to(device)), f(table, index))
    with pytest.raises(type(expected.value)):
        compiled(table.to(device), bad.to(device))
    assert launches() == 2
    assert_same(compiled(table.to(device), good.to(device)), f(table, good))
    assert launches() == 3


def test_user_exceptions(device):
    def f(x):
        y = x + 1
        if x.shape[0] == 3:
            raise ValueError("three rows")
        return y

    compiled = torch.compile(f, backend="openxla")
    with pytest.raises(ValueError, match="three rows"):
        compiled(batch(0, 3, 4).to(device))
    assert compiled(batch(0, 2, 4).to(device)).shape == (2, 4)


def test_a_failed_input_raises(device):
    compiled = torch.compile(lambda x: x + 1, backend="openxla")
    x = torch.linalg.cholesky_ex(-torch.eye(2, device=device), check_errors=False)[0]
    assert compiled(x).shape == (2, 2)


# --- What is registered ---


def test_backends_are_listed():
    from torch._dynamo import list_backends

    assert "openxla" in list_backends()
    assert "openxla_eval" in list_backends(exclude_tags=())


@pytest.mark.parametrize("order", ["torch_xla first", "torch._dynamo first"])
def test_registered_whatever_is_imported_first(run_python, order):
    first, second = "torch_xla", "torch._dynamo.backends.torchxla, torch._dynamo.device_interface"
    if order == "torch._dynamo first":
        first, second = second, first
    done = run_python(f"""
        import torch
        import {first}
        import {second}
        import torch_xla
        from torch._dynamo.backends.registry import lookup_backend
        from torch._dynamo.device_interface import get_interface_for_device
        assert lookup_backend("openxla").kwargs["keep_inference_input_mutations"]
        assert lookup_backend("openxla_eval").__module__ == "torch_xla._dynamo.backends"
        assert get_interface_for_device("xla").device_count() >= 1
        x = torch.ones(2, device="xla")
        assert torch.compile(lambda x: x + 1, backend="openxla")(x).tolist() == [2, 2]
    """)
    assert done.returncode == 0, done.stderr


def test_importing_torch_xla_does_not_import_dynamo(run_python):
    done = run_python("""
        import sys, torch
        before = set(sys.modules)
        import torch_xla
        new = set(sys.modules) - before
        assert not [name for name in new if name.startswith("torch._dynamo")], new
    """)
    assert done.returncode == 0, done.stderr


def test_graphs_of_ones_own(device):
    from torch_xla.core.dynamo_bridge import extract_compiled_graph

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(2))

        def forward(self, x):
            y = x * 2
            self.total.add_(y)
            return y + 1, y.view(1, 2)

    model = Model()
    graph = torch.fx.symbolic_trace(copy.deepcopy(model).to(device))
    compiled = extract_compiled_graph(graph, (torch.ones(2, device=device),))
    for _ in range(3):
        assert_same(compiled(torch.ones(2, device=device)), list(model(torch.ones(2))))
        assert_same(graph.total, model.total)
