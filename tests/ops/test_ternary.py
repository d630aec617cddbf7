"""csrc/aten/ternary.cpp against CPU."""

from __future__ import annotations

import pytest
import torch
from harness import (
    DEVICE,
    FLOAT_FIRST,
    check_call,
    check_errors,
    check_sample,
    check_variants,
    ops,
    pairs,
    samples,
)

OPS = ops(
    "addcdiv",
    "addcmul",
    "clamp",
    "clamp_max",
    "clamp_min",
    "lerp",
    "where",
)

DTYPES = (*FLOAT_FIRST, torch.complex64)


@pytest.mark.parametrize("op, dtype", pairs(OPS, DTYPES))
def test_values(op, dtype):
    for sample in samples(op, dtype, 4 if dtype == torch.float32 else 1):
        check_sample(op, sample, dtype)


@pytest.mark.parametrize("op, dtype", pairs(OPS, [torch.float32]))
def test_variants(op, dtype):
    for sample in samples(op, dtype, 1):
        check_variants(op, sample, dtype)


@pytest.mark.parametrize("op", [op for op in OPS if op.error_inputs_func], ids=lambda op: op.name)
def test_errors(op):
    check_errors(op)


def test_nan_and_crossed_bounds():
    nan, inf = float("nan"), float("inf")
    x = torch.tensor([nan, inf, -inf, -2.0, 0.0, 2.0])
    for low, high in ((-1.0, 1.0), (1.0, -1.0), (None, 0.5), (0.5, None), (nan, 1.0), (0.0, nan)):
        check_call(lambda x, a=low, b=high: torch.clamp(x, a, b), (x,))
    check_call(torch.clamp, (x, x.flip(0), x * 0.5))
    check_call(torch.clamp, (torch.arange(5), 1, 2.5))


def test_inplace_on_shared_memory():
    """Reading and writing overlapping parts of one storage is refused, as on CPU."""
    for device in ("cpu", DEVICE):
        x = torch.arange(6.0, device=device)
        with pytest.raises(RuntimeError, match="single memory location"):
            x[1:].addcmul_(x[:-1], x[:-1])
        x[:3].addcmul_(x[3:], x[3:])
        assert x.tolist() == [9.0, 17.0, 27.0, 3.0, 4.0, 5.0]
