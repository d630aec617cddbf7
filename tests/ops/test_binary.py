"""csrc/aten/binary.cpp and isin.cpp against CPU."""

from __future__ import annotations

import functools
import math

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

HALVES = [torch.bfloat16, torch.float16]


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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("number", [0.7, -10000, 257, 2049, torch.tensor(0.1)], ids=str)
def test_16_bit_floats_are_compared_with_what_a_number_is_to_them(number, dtype):
    values = torch.full((3, 2), float(number), dtype=dtype)
    others = [number, number.to(DEVICE)] if isinstance(number, torch.Tensor) else [number]
    for compare in (torch.eq, torch.ne, torch.lt, torch.le, torch.gt, torch.ge):
        expected = compare(values, number)
        for other in others:
            assert torch.equal(compare(values.to(DEVICE), other).cpu(), expected)
            assert torch.equal(compare(values.to(DEVICE).t(), other).cpu(), expected.t())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mode", ["trunc", "floor"])
def test_16_bit_floats_round_before_the_division_does(mode, dtype):
    x = torch.linspace(-90, 90, 1999).to(dtype)
    y = torch.linspace(-3, 3, 1999).flip(0).to(dtype)
    divide = functools.partial(torch.div, rounding_mode=mode)
    for pair in ((x, y), (x, y[5]), (x, y[5:6]), (x[7:8], y)):
        expected, got = divide(*pair), divide(*(t.to(DEVICE) for t in pair))
        assert torch.equal(expected, got.cpu())
        assert torch.equal(expected.signbit(), got.cpu().signbit())
    for number in (1.07, torch.tensor(0.3)):
        assert torch.equal(divide(x, number), divide(x.to(DEVICE), number).cpu())
        for name in ("fmod", "remainder"):
            check_call(getattr(torch, name), (x, number))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_multiples_of_a_number_divide_exactly(dtype):
    x = torch.arange(-300, 300).to(dtype) * 0.3
    for number in (0.3, torch.tensor(0.3, dtype=dtype), -0.1):
        for mode in ("trunc", "floor"):
            got = torch.div(x.to(DEVICE), number, rounding_mode=mode).cpu()
            expected = torch.div(x, number, rounding_mode=mode)
            assert torch.equal(expected, got)
            assert torch.equal(expected.signbit(), got.signbit())


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


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32, torch.int64], ids=str)
def test_integer_powers_of_any_size(dtype):
    base = torch.tensor([0, 1, 2, 3, -1, -2, 7]).to(dtype)
    exponents = torch.tensor([0, 1, 2, 5, 31, 62, 63, 64, 65, 100]).to(dtype)
    check_call(torch.pow, (base.unsqueeze(1), exponents))
    check_call(lambda x: (x**64, x**65, 3**x), (exponents,))


@pytest.mark.parametrize("dtype", [*HALVES, torch.float32, torch.float64], ids=str)
def test_quotients_to_the_bit(dtype):
    x = torch.rand(50, 20, dtype=dtype) * 100
    for divisor in (3, 7.7, -0.1, torch.tensor(49.0, dtype=dtype), x[0], x[:, :1]):
        there = divisor.to(DEVICE) if isinstance(divisor, torch.Tensor) else divisor
        assert torch.equal((x.to(DEVICE) / there).cpu(), x / divisor)
    y = x.to(DEVICE)
    y /= 7.7
    (z,) = torch._foreach_div([x.to(DEVICE)], 7.7)
    assert torch.equal(y.cpu(), x / 7.7) and torch.equal(z.cpu(), x / 7.7)


# Whether CPU rounds the number to the dtype first differs from operator to operator.
WITH_NUMBERS = {
    "add": lambda x, y: (x + 0.3, x.clone().add_(0.3), torch.add(x, 0.3, alpha=0.7)),
    "subtract": lambda x, y: (x - 0.3, 0.3 - x, torch.rsub(x, 0.3, alpha=0.7)),
    "scaled": lambda x, y: (torch.add(x, y, alpha=0.3), torch.sub(x, y, alpha=0.3)),
    "scalar tensor": lambda x, y: (x + torch.tensor(0.3), x * torch.tensor(0.3)),
    "scalar tensor on the device": lambda x, y: (
        x + torch.tensor(0.3, device=x.device),
        x * torch.tensor(0.3, device=x.device),
    ),
    "multiply": lambda x, y: (x * 0.3, x / 0.3, 0.3 / x),
    "power": lambda x, y: (x.abs() ** 1.3, 0.3**x, x**2, x.abs() ** 0.5),
    "remainder": lambda x, y: (torch.fmod(x, 0.3), torch.remainder(x, 0.3), x // 0.3),
    "fused": lambda x, y: (
        torch.addcmul(x, x, y, value=0.3),
        torch.addcdiv(x, x, y, value=0.3),
        torch.lerp(x, y, 0.3),
    ),
    "lists": lambda x, y: (
        *torch._foreach_add([x], 0.3),
        *torch._foreach_sub([x], [0.3]),
        *torch._foreach_add([x], [y], alpha=0.3),
        *torch._foreach_mul([x], 0.3),
        *torch._foreach_pow(0.3, [x]),
    ),
}


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", WITH_NUMBERS)
def test_numbers_beside_halves_to_the_bit(name, dtype):
    generator = torch.Generator().manual_seed(0)
    # Whole vectors: in what is left over, CPU rounds products before it adds them.
    x, y = (torch.randn(1024, generator=generator).to(dtype) for _ in range(2))
    expected = WITH_NUMBERS[name](x, y)
    got = WITH_NUMBERS[name](x.to(DEVICE), y.to(DEVICE))
    for i, (want, have) in enumerate(zip(expected, got, strict=True)):
        assert want.dtype == have.dtype and torch.equal(have.cpu(), want), i


# CPU rounds each step.
IN_STEPS = {
    "cube": lambda x, y: x**3,
    "inverse square": lambda x, y: x**-2,
    "root": lambda x, y: x.abs() ** 0.5,
    "inverse root": lambda x, y: x.abs() ** -0.5,
    "xlogy": lambda x, y: torch.xlogy(x, y.abs()),
    "xlog1py": lambda x, y: torch.special.xlog1py(x, y.abs()),
    "atan2": torch.atan2,
}


@pytest.mark.parametrize("name", IN_STEPS)
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_halves_to_the_bit(name, dtype):
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(1024, generator=generator).to(dtype) for _ in range(2))
    got = IN_STEPS[name](x.to(DEVICE), y.to(DEVICE))
    assert torch.equal(got.cpu(), IN_STEPS[name](x, y))


@pytest.mark.parametrize("exponent", [0.5, -0.5, 2, 3, -1, -2, 1.5])
@pytest.mark.parametrize("dtype", [*HALVES, torch.float32], ids=str)
def test_powers_of_edges(exponent, dtype):
    x = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, -1.0, 4.0]).to(dtype)
    expected, got = x**exponent, (x.to(DEVICE) ** exponent).cpu()
    torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)
    numbers = ~expected.isnan()
    assert torch.equal(got.signbit()[numbers], expected.signbit()[numbers])


def test_sums_of_bools():
    """XLA adds constants modulo 2."""
    x = torch.ones(3, dtype=torch.bool, device=DEVICE)
    assert (x + torch.ones_like(x)).tolist() == [True] * 3
    assert (x * torch.ones_like(x)).tolist() == [True] * 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.complex64])
def test_what_a_mask_leaves_out_is_still_nan(dtype):
    """XLA takes a product with a converted bool for a choice, where NaN and infinity vanish."""
    x = torch.tensor([math.nan, math.inf, -math.inf, 2.0]).to(dtype)
    mask = torch.tensor([False, False, True, True])
    masks = (mask, ~mask, mask.expand(3, 4), x.real > 0)
    for mask in masks:
        check_call(lambda x, m: x * m, (x, mask))
        check_call(lambda x, m: x * m.to(x.dtype), (x, mask))
        check_call(lambda x, m: (x * m).sum(), (x, mask))
    check_call(lambda x: x * (x.real > 1), (x,))
    check_call(lambda x, m: torch.dot(x, m.to(x.dtype)), (x, masks[0]))


def test_bools_are_not_divided():
    x = torch.ones(2, dtype=torch.bool, device=DEVICE)
    for mode in ("trunc", "floor"):
        with pytest.raises(NotImplementedError, match=f"div_{mode}_cpu"):
            torch.div(x, x, rounding_mode=mode)
