"""Joining, repeating and reordering, factories, sorting and results of data-dependent size."""

from __future__ import annotations

import pytest
import torch
from harness import (
    DEVICE,
    check_call,
    check_equal,
    check_errors,
    check_sample,
    check_variants,
    copy_to,
    ops,
    pairs,
    samples,
)

SHAPE = ops(
    "as_strided_scatter",
    "cat",
    "diag_embed",
    "diagonal_copy",
    "diagonal_scatter",
    "expand_copy",
    "flip",
    "fliplr",
    "nn.functional.channel_shuffle",
    "nn.functional.pixel_shuffle",
    "nn.functional.pixel_unshuffle",
    "permute_copy",
    "repeat",
    "roll",
    "rot90",
    "select_scatter",
    "slice_scatter",
    "stack",
    "tile",
    "tril",
    "triu",
    "unbind_copy",
    "unfold",
    "unfold_copy",
    "view_copy",
)
SORT = ops("argsort", "bucketize", "kthvalue", "msort", "searchsorted", "sort", "topk")
FACTORY = ops(
    "arange",
    "eye",
    "full_like",
    "linspace",
    "logspace",
    "scalar_tensor",
    "tril_indices",
    "triu_indices",
    "zeros_like",
)
DYNAMIC = ops(
    "argwhere",
    "bincount",
    "masked_select",
    "nonzero",
    "nonzero_static",
    "repeat_interleave",
    "tensor_split",
    "unique",
    "unique_consecutive",
)
DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool)


@pytest.mark.parametrize("op, dtype", pairs(SHAPE + SORT, DTYPES))
def test_samples(op, dtype):
    for sample in samples(op, dtype, limit=4):
        check_sample(op, sample, dtype)


@pytest.mark.parametrize("op, dtype", pairs(DYNAMIC, DTYPES))
def test_dynamic_samples(op, dtype):
    for sample in samples(op, dtype, limit=4):
        check_sample(op, sample, dtype, native=False)


@pytest.mark.parametrize("op, dtype", pairs(FACTORY, DTYPES))
def test_factories(op, dtype):
    for sample in samples(op, dtype, limit=6):
        results = []
        for device in (torch.device("cpu"), DEVICE):
            arguments = copy_to([sample.input, *sample.args], device)
            kwargs = {**copy_to(sample.kwargs, device), "dtype": dtype, "device": device}
            results.append(op.op(*arguments, **kwargs))
        check_equal(*results, dtype=dtype)


@pytest.mark.parametrize("op, dtype", pairs(SHAPE + SORT, (torch.float32,)))
def test_variants(op, dtype):
    for sample in samples(op, dtype, limit=2):
        check_variants(op, sample, dtype)


@pytest.mark.parametrize(
    "op",
    [op for op in SHAPE + SORT + DYNAMIC if op.error_inputs_func is not None],
    ids=lambda op: op.formatted_name,
)
def test_errors(op):
    check_errors(op, by_value="out of (bounds|range)")


@pytest.mark.parametrize(
    "arguments, dtype",
    [
        ((0, 1, 0.1), None),
        ((1, 2, 0.05), None),
        ((1, 0, -0.1), None),
        ((5, 0, -2), None),
        ((3.0,), None),
        ((2100,), torch.float16),
        ((0, 300, 2), torch.bfloat16),
        ((2**40, 2**40 + 3), None),
        ((0.5, 4), torch.int64),
        ((0,), None),
        ((-3, 3, 2), torch.uint8),
    ],
)
def test_arange_lengths_and_values(arguments, dtype):
    check_equal(
        torch.arange(*arguments, dtype=dtype), torch.arange(*arguments, dtype=dtype, device=DEVICE)
    )


@pytest.mark.parametrize("arguments", [(0, 3, -1), (3, 0), (0, 1, 0), (0, float("inf"))])
def test_arange_errors(arguments):
    with pytest.raises(Exception) as expected:
        torch.arange(*arguments)
    with pytest.raises(expected.type):
        torch.arange(*arguments, device=DEVICE)


def test_cat_promotes_and_skips_empty_vectors():
    parts = [torch.ones(2, 3, dtype=torch.int64), torch.empty(0), torch.rand(1, 3)]
    check_call(lambda *parts: torch.cat(parts), tuple(parts))
    with pytest.raises(RuntimeError):
        torch.cat([torch.ones(2, 3, device=DEVICE), torch.ones(2, 4, device=DEVICE)])


@pytest.mark.parametrize("descending", [False, True])
def test_nan_sorts_as_the_greatest(descending):
    x = torch.tensor([[1.0, float("nan"), -float("inf")], [float("nan"), 2.0, float("inf")]])
    check_call(lambda x: torch.sort(x, descending=descending, stable=True), (x,))
    check_call(lambda x: torch.topk(x, 2, largest=descending), (x,))


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.bfloat16, torch.uint8])
def test_sort_is_stable(dtype):
    x = torch.randint(3, (50,)).to(dtype)
    check_call(lambda x: torch.sort(x, stable=True), (x,))
    check_call(lambda x: torch.sort(x, stable=True, descending=True), (x,))


UNIQUE = [
    torch.tensor([3.0, 1.0, float("nan"), 1.0, float("nan"), 2.0, 2.0]),
    torch.tensor([[2, 0, 1, 1], [0, 3, 2, 2], [2, 0, 1, 1], [0, 3, 1, 2]]),
    torch.tensor([[[True, False], [True, True]], [[False, False], [True, True]]]).transpose(0, 2),
    torch.tensor([7, 250, 7], dtype=torch.uint8),
    torch.tensor(3.0),
    torch.zeros(0),
    torch.zeros(3, 0),
]


@pytest.mark.parametrize("x", UNIQUE, ids=lambda x: f"{x.dtype}-{list(x.size())}")
@pytest.mark.parametrize("extra", [False, True])
def test_unique_elements(x, extra):
    check_call(torch._unique, (x, True, extra), native=False)
    for is_sorted in (False, True):
        check_call(torch._unique2, (x, is_sorted, extra, not extra), native=False)
        check_call(torch._unique2, (x, is_sorted, extra, extra), native=False)
    check_call(torch.unique_consecutive, (x, extra, extra), native=False)


@pytest.mark.parametrize("x", UNIQUE[1:], ids=lambda x: f"{x.dtype}-{list(x.size())}")
@pytest.mark.parametrize("function", [torch.unique, torch.unique_consecutive])
def test_unique_slices(function, x):
    extra = {"return_inverse": True, "return_counts": True}
    for dim in range(-1, x.dim()):
        try:
            function(x, dim=dim, **extra)
        except (RuntimeError, IndexError) as error:
            with pytest.raises(type(error)):
                function(x.to(DEVICE), dim=dim, **extra)
        else:
            check_call(lambda x, dim=dim: function(x, dim=dim, **extra), (x,), native=False)


def test_many_rows_are_unique_in_order():
    rows = torch.arange(600).remainder(7).reshape(100, 6).float()
    check_call(lambda x: torch.unique(x, dim=0, return_inverse=True), (rows,), native=False)


@pytest.mark.parametrize("where", [torch.tensor([2, 5]), torch.tensor(3), torch.tensor([])])
def test_tensor_split_where_a_tensor_says(where):
    x = torch.arange(12.0).reshape(3, 4).requires_grad_()
    where = where.long()
    check_call(lambda x, where: torch.tensor_split(x, where, dim=1), (x, where), native=False)
    with pytest.raises(RuntimeError, match="dtype of long"):
        torch.tensor_split(x.to(DEVICE), where.float().to(DEVICE))


def test_nonzero_gives_exact_sizes_step_after_step():
    for limit in (2, 5, 0, 6):
        check_call(lambda x, limit=limit: (x < limit).nonzero(), (torch.arange(6),), native=False)
        check_call(lambda x, limit=limit: x[x < limit] * 2, (torch.arange(6.0),), native=False)


def test_zero_dimensional_tensors():
    x = torch.tensor(3.0)
    zero = torch.tensor(0)
    check_call(lambda x: torch.sort(x), (x,))
    check_call(lambda x: x.topk(1), (x,))
    check_call(lambda x: x.flip(0), (x,))
    check_call(lambda x: x.repeat(2, 2), (x,))
    check_call(lambda x: x.nonzero(), (x,), native=False)
    check_call(lambda x, i: x.gather(0, i), (x, zero))
    check_call(lambda x, i: x.index_select(0, i), (x, zero))
    check_call(lambda x, i: x.scatter(0, i, 2.0), (x, zero))
    check_call(lambda x, i: x.index_add(0, i, x), (x, zero))
    check_call(lambda x, i: x.index_fill(0, i, 5.0), (x, zero))
    check_call(lambda x, i: x.take(i), (x, zero))


def test_a_new_start_of_arange_does_not_recompile():
    import torch_xla
    import torch_xla.debug.metrics as met

    torch_xla.sync()
    compiles = []
    for start in (1, 5, 9):
        torch.arange(start, start + 4, device=DEVICE)
        y = torch.arange(start, start + 4, device=DEVICE) * 2
        torch_xla.sync()
        assert y.tolist() == [2 * (start + i) for i in range(4)]
        compiles.append(met.counter_value("UncachedCompile"))
    assert compiles[1] == compiles[2]


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.int8,
        torch.uint8,
        torch.int32,
        torch.bool,
    ],
    ids=str,
)
@pytest.mark.parametrize("number", [1e6, -1e300, 300, -1, float("nan"), float("inf"), 1j], ids=str)
def test_numbers_that_do_not_fit(number, dtype):
    """Refused, or infinite, where they are on CPU, which takes single 16-bit floats for others."""

    def assigned(device):
        tensor = torch.ones(3, device=device).to(dtype)
        tensor[1:] = number
        return tensor

    calls = (
        lambda device: torch.full((2,), number, dtype=dtype, device=device),
        lambda device: torch.full((1,), number, dtype=dtype, device=device),
        lambda device: torch.ones(2, device=device).to(dtype).fill_(number),
        lambda device: torch.full_like(torch.ones(2, device=device).to(dtype), number),
        assigned,
    )
    for call in calls:
        try:
            expected = call("cpu")
        except RuntimeError as error:
            with pytest.raises(RuntimeError) as raised:
                call(DEVICE)
            assert str(raised.value) == str(error)
        else:
            check_equal(expected, call(DEVICE))
