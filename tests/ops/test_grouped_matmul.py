"""Products of groups of rows, as in a mixture of experts: csrc/aten/grouped_matmul.cpp."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from harness import DEVICE, check_equal

import torch_xla

GROUPS = {
    "even": [10, 20, 30, 40],
    "uneven": [1, 2, 39, 40],
    "none of some": [0, 17, 17, 40],
    "one of all": [0, 0, 40, 40],
    "rows left over": [3, 9, 9, 31],
    "nothing": [0, 0, 0, 0],
}


def tensors(rows, groups, dtype):
    generator = torch.Generator().manual_seed(rows + groups)
    x = torch.randn(rows, 16, generator=generator).to(dtype)
    weights = torch.randn(groups, 16, 24, generator=generator).to(dtype)
    return x, weights


def product(x, weights, ends, device):
    """The rows that belong to a group, and the gradients of their squares."""
    x, weights = (each.to(device).requires_grad_() for each in (x, weights))
    ends = torch.tensor(ends, dtype=torch.int32)
    y = F.grouped_mm(x, weights, offs=ends.to(device))[: int(ends[-1])]
    grads = torch.autograd.grad(y.float().square().sum(), (x, weights))
    return y, grads[0][: int(ends[-1])], grads[1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", GROUPS)
def test_groups(name, dtype, no_fallback):
    x, weights = tensors(40, 4, dtype)
    expected = product(x, weights, GROUPS[name], "cpu")
    check_equal(expected, product(x, weights, GROUPS[name], DEVICE), dtype=dtype)


@pytest.mark.parametrize("rows, ends", [(1, [1]), (7, [3, 7]), (600, [0, 10, 300, 301, 600])])
def test_sizes(rows, ends, no_fallback):
    x, weights = tensors(rows, len(ends), torch.float32)
    expected = product(x, weights, ends, "cpu")
    check_equal(expected, product(x, weights, ends, DEVICE))


def test_transposed():
    x, weights = tensors(40, 4, torch.float32)
    ends = torch.tensor(GROUPS["uneven"], dtype=torch.int32)

    def products(device):
        a, w, offs = x.to(device), weights.to(device), ends.to(device)
        rows = F.grouped_mm(a.t().contiguous().t(), w.mT.contiguous().mT, offs=offs)
        return rows, F.grouped_mm(a.t(), rows, offs=offs)

    check_equal(products("cpu"), products(DEVICE))


def test_what_is_not_a_number_stays_in_its_group():
    x, weights = tensors(40, 4, torch.float32)
    x[5], weights[3, 0, 0] = float("nan"), float("inf")
    expected = product(x, weights, GROUPS["even"], "cpu")
    check_equal(expected, product(x, weights, GROUPS["even"], DEVICE))


def test_other_forms():
    x, weights = tensors(40, 4, torch.float32)

    def products(device):
        a, w = x.to(device), weights.to(device)
        ends = torch.tensor([8, 16, 24, 32], dtype=torch.int32, device=device)
        batches = F.grouped_mm(a.view(4, 10, 16).contiguous(), w)
        columns = F.grouped_mm(w.mT.contiguous(), a[:16, :].new_ones(16, 32), offs=ends)
        return batches, columns

    check_equal(products("cpu"), products(DEVICE))


def test_one_program_for_all_groups(metrics):
    x, weights = tensors(40, 4, torch.float32)
    a, w = x.to(DEVICE).requires_grad_(), weights.to(DEVICE).requires_grad_()
    compiled = []
    for ends in GROUPS.values():
        offs = torch.tensor(ends, dtype=torch.int32).to(DEVICE)
        F.grouped_mm(a, w, offs=offs).square().sum().backward()
        torch_xla.sync()
        a.grad = w.grad = None
        compiled.append(metrics.counter_value("UncachedCompile"))
    assert compiled[-1] == compiled[0]


def wrong(device):
    x, weights = (each.to(device) for each in tensors(40, 4, torch.float32))
    ends = torch.tensor([10, 20, 30, 40], dtype=torch.int32, device=device)
    yield lambda: F.grouped_mm(x, weights)
    yield lambda: F.grouped_mm(x, weights, offs=ends.long())
    yield lambda: F.grouped_mm(x, weights, offs=ends[:3])
    yield lambda: F.grouped_mm(x, weights, offs=ends[None])
    yield lambda: F.grouped_mm(x[:, :8], weights, offs=ends)
    yield lambda: F.grouped_mm(x.double(), weights, offs=ends)
    yield lambda: F.grouped_mm(x[0], weights, offs=ends)


def test_errors():
    for on_cpu, on_xla in zip(wrong("cpu"), wrong(DEVICE), strict=True):
        with pytest.raises(Exception) as expected:
            on_cpu()
        with pytest.raises(type(expected.value)) as got:
            on_xla()
        assert str(got.value).split("\n")[0] == str(expected.value).split("\n")[0]
