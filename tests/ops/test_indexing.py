"""Indexing, gather and scatter, embeddings: values, gradients, strides and errors against CPU."""

from __future__ import annotations

import pytest
import torch
from harness import (
    DEVICE,
    check_call,
    check_errors,
    check_sample,
    check_variants,
    ops,
    pairs,
    samples,
)

F = torch.nn.functional

OPS = ops(
    "gather",
    "index_add",
    "index_copy",
    "index_fill",
    "index_put",
    "index_reduce",
    "index_select",
    "masked_fill",
    "masked_scatter",
    "nn.functional.embedding",
    "nn.functional.embedding_bag",
    "put",
    "scatter",
    "scatter_add",
    "scatter_reduce",
    "take",
    "take_along_dim",
    "__getitem__",
)
DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool)


# A mask as an index has as many positions as its values say: that number is waited for, and
# counted. The gradients of value= of the two fills select by mask and by unique index.
WAITING = ("__getitem__", "index_put", "index_fill", "masked_fill")


@pytest.mark.parametrize("op, dtype", pairs(OPS, DTYPES))
def test_samples(op, dtype):
    for sample in samples(op, dtype, limit=4):
        check_sample(op, sample, dtype, native=op.name not in WAITING)


@pytest.mark.parametrize("op, dtype", pairs(OPS, (torch.float32,)))
def test_variants(op, dtype):
    for sample in samples(op, dtype, limit=2):
        check_variants(op, sample, dtype)


@pytest.mark.parametrize(
    "op", [op for op in OPS if op.error_inputs_func is not None], ids=lambda op: op.formatted_name
)
def test_errors(op):
    check_errors(op, by_value="out of bounds")


def _positions(*values):
    return torch.tensor(values)


@pytest.mark.parametrize(
    "index",
    [
        _positions(0, -1, 2),
        (_positions(1, 0), _positions(-2, 2)),
        (slice(None), _positions(1, 1)),
        (_positions(1, 0), slice(None), _positions(0, -3)),
        (slice(None), _positions(2, 0)[:, None], _positions(1, 2, -1)),
        (..., _positions(0, 0).int()),
        (None, _positions(2)),
        torch.empty(0, dtype=torch.int64),
        (1, _positions(2, 0)),
    ],
    ids=str,
)
@pytest.mark.parametrize("layout", [(0, 1, 2), (2, 0, 1)], ids=["rows", "permuted"])
def test_advanced_index(index, layout):
    x = torch.arange(60.0).reshape(3, 4, 5).permute(layout).requires_grad_()
    check_call(lambda x, index: x[index], (x, index))


@pytest.mark.parametrize("value", [7.0, "row", "all"])
def test_assignment_by_index_and_mask(value):
    def assign(x, index, mask, row):
        given = {"row": row, "all": row.expand(2, 4)}.get(value, value)
        x = x.clone()
        x[index] = given
        x[:, mask] = 9.0
        x[mask[:3]] += 1
        return x

    mask = torch.tensor([True, False, False, True])
    args = (torch.arange(12.0).reshape(3, 4), _positions(2, -3), mask, torch.arange(4.0))
    check_call(assign, args, native=False)


def test_accumulation_adds_every_duplicate():
    def accumulate(x, index, values):
        return x.index_put((index,), values, accumulate=True)

    check_call(accumulate, (torch.zeros(4), _positions(1, 1, -1, 1), torch.arange(4.0)))


def test_mask_assignment_of_a_number_stays_on_the_device():
    def assign(x, mask):
        x = x.clone()
        x[mask] = -1.0
        return x

    check_call(assign, (torch.arange(6.0).reshape(2, 3), torch.eye(2, 3).bool()))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x[_positions(1).to(x.device), 0, 0],
        lambda x: x[torch.tensor([5])],
        lambda x: x.index_select(0, torch.tensor([[0]], device=x.device)),
        lambda x: x.gather(0, torch.tensor([0], device=x.device)),
        lambda x: x.gather(0, torch.tensor([[0.0]], device=x.device)),
        lambda x: x.masked_fill(torch.ones(3, 4, device=x.device), 0.0),
        lambda x: x.long().masked_fill(x > 1, float("-inf")),
        lambda x: x[:0].index_select(0, torch.tensor([0], device=x.device)),
        lambda x: x.scatter(1, torch.zeros(4, 1, dtype=torch.int64, device=x.device), 1.0),
        lambda x: F.embedding(torch.zeros(2, device=x.device), x),
        lambda x: x.take(torch.zeros(2, device=x.device)),
    ],
)
def test_bad_arguments_raise_at_the_call(call):
    x = torch.zeros(3, 4)
    with pytest.raises(Exception) as expected:
        call(x)
    with pytest.raises(expected.type):
        call(x.to(DEVICE))


@pytest.mark.parametrize("padding_idx", [None, 1])
@pytest.mark.parametrize("by_frequency", [False, True])
def test_embedding_gradient(padding_idx, by_frequency):
    weight = torch.randn(5, 3, requires_grad=True)
    index = torch.tensor([[0, 1, 1], [4, 4, 4]])
    check_call(
        F.embedding,
        (index, weight),
        {"padding_idx": padding_idx, "scale_grad_by_freq": by_frequency},
    )


@pytest.mark.parametrize("norm_type", [2.0, 1.0, float("inf"), 3.0])
def test_embedding_renorm(norm_type):
    def renorm(index, weight):
        weight = weight.clone()
        return torch.embedding_renorm_(weight, index, 1.0, norm_type)

    check_call(renorm, (torch.tensor([0, 2]), torch.randn(4, 3) * 3))


@pytest.mark.parametrize(
    "call",
    [
        lambda x, i: x[i],
        lambda x, i: x.index_put((i,), x.new_zeros(())),
        lambda x, i: x.gather(0, i[:, None]),
        lambda x, i: x.scatter(0, i[:, None], 1.0),
        lambda x, i: x.index_select(0, i),
        lambda x, i: x.index_add(0, i, x[:2]),
        lambda x, i: x.index_fill(0, i, 1.0),
        lambda x, i: x.view(-1)[::4].take(i),
        lambda x, i: F.embedding(i, x),
        lambda x, i: F.embedding(i.view(1, 2)[:, 1:].int(), x),
    ],
)
def test_what_the_host_knows_is_checked_at_the_call(call):
    x, inside, outside = torch.zeros(3, 4), torch.tensor([0, 2]), torch.tensor([0, 3])
    check_call(call, (x, inside))
    with pytest.raises((IndexError, RuntimeError)) as expected:
        call(x, outside)
    with pytest.raises(expected.type):
        call(x.to(DEVICE), outside.to(DEVICE))


def test_elements_that_a_view_leaves_out_are_not_checked():
    x = torch.arange(12.0).view(3, 4)
    numbers = torch.tensor([[0, 99], [2, 99], [1, -99]])
    on_device = numbers.to(DEVICE)
    picked = x.to(DEVICE).index_select(0, on_device[:, 0])
    assert torch.equal(picked.cpu(), x.index_select(0, numbers[:, 0]))
    labels = on_device.t()[0]
    assert torch.equal(F.nll_loss(x.to(DEVICE), labels).cpu(), F.nll_loss(x, numbers[:, 0]))
    with pytest.raises(IndexError):
        x.to(DEVICE).index_select(0, on_device[:, 1])


@pytest.mark.parametrize("size", [(), (1,), (1, 1), (2,)], ids=str)
@pytest.mark.parametrize("value", [torch.float32, torch.float64, torch.int64, torch.bool], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool], ids=str)
def test_values_put_at_a_mask_have_any_dtype_when_there_is_one(dtype, value, size):
    def put(device):
        x = torch.zeros(2, 2, dtype=dtype, device=device)
        mask = torch.tensor([[True, False], [True, False]]).to(device)
        try:
            x[mask] = torch.ones(size, device=device).to(value)
        except RuntimeError as error:
            return str(error)
        return x.cpu()

    got, expected = put(DEVICE), put("cpu")
    assert type(got) is type(expected)
    assert got == expected if isinstance(got, str) else torch.equal(got, expected)
