"""csrc/aten/reduction.cpp and extremum.cpp against CPU."""

from __future__ import annotations

import math

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

SUMS = ops("sum", "mean", "prod", "nansum", "count_nonzero", "trace", "all", "any", "renorm")
NORMS = ops("norm", "linalg.vector_norm", "logsumexp", "var", "std", "var_mean", "std_mean")
EXTREMES = ops("amax", "amin", "aminmax", "max", "min", "argmax", "argmin", "median", "nanmedian")
OPS = [op for op in SUMS + NORMS + EXTREMES if op.variant_test_name not in ("binary", "nuc", "fro")]


@pytest.mark.parametrize("op, dtype", pairs(OPS))
def test_values(op, dtype):
    for sample in samples(op, dtype, 4 if dtype == torch.float32 else 2):
        # torch's gradient of prod looks for zeros with nonzero, which asks the host.
        check_sample(op, sample, dtype, native=op.name != "prod")


@pytest.mark.parametrize("op, dtype", pairs(OPS, [torch.float32]))
def test_variants(op, dtype):
    for sample in samples(op, dtype, 2):
        check_variants(op, sample, dtype)


@pytest.mark.parametrize("op", [op for op in OPS if op.error_inputs_func], ids=lambda op: op.name)
def test_errors(op):
    check_errors(op, 12)


NAN = math.nan
WITH_NANS = torch.tensor([[1.0, NAN, 3.0, 3.0], [NAN, NAN, 0.0, 0.0], [2.0, 5.0, 5.0, 1.0]])


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin", "median", "nanmedian"])
@pytest.mark.parametrize("dim", [None, 0, 1])
def test_nan_and_ties(name, dim):
    # Which of several equal middle elements is named is open.
    function = getattr(torch, name)
    args = () if dim is None else (dim,)

    def values(x):
        result = function(x, *args)
        return result.values if "median" in name and dim is not None else result

    check_call(values, (WITH_NANS,), grad=False)


@pytest.mark.parametrize("p", [0, 0.5, 1, 2, 3, math.inf, -math.inf, -1.5])
@pytest.mark.parametrize("dim", [None, 0, (0, 1)])
def test_norms(p, dim):
    x = torch.tensor([[3.0, 0.5, -4.0], [0.25, 7.0, 2.0]], requires_grad=True)
    check_call(lambda x: torch.linalg.vector_norm(x, p, dim), (x,))
    check_call(lambda x: torch.norm(x, p, dim), (x,))


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32, torch.bool])
def test_small_integers_add_up_in_int64(dtype):
    x = torch.tensor([[100, 100, 2], [90, 3, 7]]).to(dtype)
    check_call(lambda x: (x.sum(), x.sum(1), x.prod(), x.prod(1), x.sum(dtype=torch.float32)), (x,))


def test_half_sums_round_once():
    x = torch.full((4096,), 0.1, dtype=torch.bfloat16)
    assert x.to(DEVICE).sum().item() == x.double().sum().bfloat16().item()


def test_norm_order_and_correction_do_not_recompile():
    import torch_xla
    import torch_xla.debug.metrics as met

    x = torch.rand(4, 3).to(DEVICE)

    def step(p, correction):
        y = torch.linalg.vector_norm(x, p, 1) + x.var(1, correction=correction)
        torch_xla.sync()
        return y.cpu()

    step(3.0, 1)
    before = met.metric_data("CompileTime")[0]
    for p, correction in ((2.5, 0), (4.0, 1.5)):
        expected = torch.linalg.vector_norm(x.cpu(), p, 1) + x.cpu().var(1, correction=correction)
        torch.testing.assert_close(step(p, correction), expected)
    assert met.metric_data("CompileTime")[0] == before


def test_empty():
    x = torch.empty(0, 3)
    check_call(lambda x: (x.sum(0), x.mean(0), x.prod(0), x.all(0), x.any(0), x.logsumexp(0)), (x,))
    for name in ("max", "min", "argmax", "amax"):
        with pytest.raises((RuntimeError, IndexError)):
            getattr(torch, name)(x.to(DEVICE))


def test_signs_of_zeros():
    """A sum begins with 0, so that of -0 is 0, however few there are."""
    for size, dims in (((3, 1), 1), ((1,), 0), ((), None), ((2, 3), 1), ((1, 1, 3), (0, 1))):
        x = torch.full(size, -0.0).to(DEVICE)
        for call in (torch.sum, torch.mean, torch.nansum):
            assert not call(x, dims).signbit().any().item()
    assert torch.full((2,), -0.0, device=DEVICE).signbit().all().item()
    assert torch.zeros(2, device=DEVICE).fill_(-0.0).relu().signbit().all().item()
