"""csrc/aten/binary.cpp and isin.cpp against CPU."""

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
    "__rpow__",
    "__rmod__",
    "bitwise_and",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "complex",
    "copysign",
    "float_power",
    "floor_divide",
    "fmax",
    "fmin",
    "fmod",
    "gcd",
    "heaviside",
    "hypot",
    "isin",
    "lcm",
    "ldexp",
    "logaddexp",
    "logaddexp2",
    "logical_and",
    "logical_or",
    "logical_xor",
    "nextafter",
    "polar",
    "pow",
    "remainder",
    "rsub",
    "xlogy",
)

DTYPES = (*FLOAT_FIRST, torch.complex64)


@pytest.mark.parametrize("op, dtype", pairs(OPS, DTYPES))
def test_values(op, dtype):
    if op.name in ("complex", "polar") and dtype == torch.float16:
        pytest.skip("xla has no complex numbers of 16-bit parts")
    for sample in samples(op, dtype, 4 if dtype == torch.float32 else 1):
        check_sample(op, sample, dtype)


@pytest.mark.parametrize("op, dtype", pairs(OPS, [torch.float32]))
def test_variants(op, dtype):
    for sample in samples(op, dtype, 1):
        check_variants(op, sample, dtype)


@pytest.mark.parametrize("op", [op for op in OPS if op.error_inputs_func], ids=lambda op: op.name)
def test_errors(op):
    check_errors(op)


def test_edges():
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([nan, inf, -inf, 0.0, -0.0, -3.0, 3.0, 0.5, -0.5, 7.0, -7.0])
    pairs_of_numbers = (x.unsqueeze(0), x.unsqueeze(1))
    for name in ("fmod", "remainder", "hypot", "copysign", "nextafter", "logaddexp", "logaddexp2"):
        check_call(getattr(torch, name), pairs_of_numbers)
    for name in ("xlogy", "heaviside", "fmax", "fmin", "pow", "floor_divide", "float_power"):
        check_call(getattr(torch, name), pairs_of_numbers)
    for exponent in (0, 1, 2, 3, 0.5, -0.5, -1, -2, 1.5, -3, inf, -inf, nan):
        check_call(lambda x, e=exponent: x**e, (x,))
        check_call(lambda x, e=exponent: e**x, (x,))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32, torch.int64])
def test_integers(dtype):
    x = torch.arange(-9, 10).to(dtype)
    column, row = x.unsqueeze(1), x.unsqueeze(0)
    positive = torch.arange(1, 5).to(dtype)
    for name in ("gcd", "lcm", "bitwise_left_shift", "bitwise_right_shift", "bitwise_xor"):
        check_call(getattr(torch, name), (column, row))
    for name in ("fmod", "remainder", "floor_divide", "pow"):
        check_call(getattr(torch, name), (column, positive))
    check_call(torch.pow, (column, -positive.to(torch.int64)))
    check_call(lambda x: (x << 2, x >> 1, x & 3, x | 4, x ^ 5, ~x), (x,))
