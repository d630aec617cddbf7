"""csrc/aten/unary.cpp against CPU."""

from __future__ import annotations

import pytest
import torch
from harness import (
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
    "abs",
    "acos",
    "acosh",
    "angle",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "bitwise_not",
    "ceil",
    "conj_physical",
    "cos",
    "cosh",
    "deg2rad",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "frac",
    "isfinite",
    "isinf",
    "isnan",
    "isneginf",
    "isposinf",
    "isreal",
    "log",
    "log10",
    "log1p",
    "log2",
    "logical_not",
    "nan_to_num",
    "neg",
    "positive",
    "rad2deg",
    "reciprocal",
    "round",
    "rsqrt",
    "sgn",
    "sign",
    "signbit",
    "sin",
    "sinc",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "trunc",
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


@pytest.mark.parametrize("function", [torch.abs, torch.log, torch.log2, torch.log10])
def test_complex_infinities(function):
    inf, nan = float("inf"), float("nan")
    parts = (0.0, 1.0, -2.0, inf, -inf, nan)
    x = torch.tensor([complex(real, imag) for real in parts for imag in parts])

    def separately(x):
        y = function(x)
        return torch.view_as_real(y) if y.is_complex() else y

    check_call(separately, (x,))
