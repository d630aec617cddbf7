"""csrc/aten/scan.cpp against CPU."""

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

OPS = ops("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "cumulative_trapezoid")


@pytest.mark.parametrize("op, dtype", pairs(OPS))
def test_values(op, dtype):
    # The gradient of logcumsumexp keeps three digits in float32, on CPU as here.
    grad = op.name != "logcumsumexp" or dtype == torch.float64
    for sample in samples(op, dtype, 3 if dtype == torch.float32 else 2):
        check_sample(op, sample, dtype, grad=grad)


@pytest.mark.parametrize("op, dtype", pairs(OPS, [torch.float32]))
def test_variants(op, dtype):
    for sample in samples(op, dtype, 2):
        check_variants(op, sample, dtype)


@pytest.mark.parametrize("op", [op for op in OPS if op.error_inputs_func], ids=lambda op: op.name)
def test_errors(op):
    check_errors(op)


@pytest.mark.parametrize("size", [0, 1, 2, 5, 8, 1000])
def test_sizes(size):
    torch.manual_seed(0)
    x = torch.randn(2, size, 3)
    check_call(lambda x: (x.cumsum(1), x.cumprod(1), x.logcumsumexp(1)), (x,))
    # Many ties, of which the last counts.
    ties = torch.randint(0, 4, (2, size, 3))
    check_call(lambda x: (torch.cummax(x, 1), torch.cummin(x, 1)), (ties,))


def test_nan_and_infinities():
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([-inf, -inf, 1.0, nan, 2.0, inf, nan, 0.0])
    check_call(lambda x: (torch.cummax(x, 0), torch.cummin(x, 0)), (x,))
    y = torch.tensor([-inf, -inf, 1.0, 2.0, inf, inf, 3.0])
    check_call(lambda y: (torch.logcumsumexp(y, 0), torch.cumsum(y, 0)), (y,))


def test_logcumsumexp_of_large_numbers():
    x = torch.tensor([[-1e4, 9999.0, 1e4, 9998.5, 1e4], [3e38, -3e38, 3e38, 0.0, 1.0]])
    check_call(lambda x: torch.logcumsumexp(x, 1), (x,))
    x = (x[:1] + torch.rand(1, 5)).requires_grad_()
    check_call(lambda x: torch.logcumsumexp(x, 1), (x,))


def test_memory_that_elements_share():
    for name in ("cumsum_", "cumprod_"):
        with pytest.raises(RuntimeError, match="more than one element"):
            getattr(torch.zeros(2, device=DEVICE).expand(3, 2), name)(1)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (0,), (2, 0)], ids=str)
@pytest.mark.parametrize(
    "call",
    [
        lambda d, shape: torch.ones(shape, dtype=torch.bool, device=d).cumsum_(0),
        lambda d, shape: torch.ones(shape, dtype=torch.bool, device=d).cumprod_(0),
        lambda d, shape: torch.ones(shape, dtype=torch.complex64, device=d).cummax(0).values,
        lambda d, shape: torch.ones(shape, dtype=torch.complex64, device=d).amax(0),
    ],
    ids=["cumsum_", "cumprod_", "cummax", "amax"],
)
def test_dtypes_that_are_not_taken_unless_there_is_nothing_to_do(call, shape):
    results = []
    for device in ("cpu", DEVICE):
        try:
            result = call(device, shape)
            results.append((result.tolist(), result.dtype, result.stride()))
        except (NotImplementedError, IndexError) as error:
            results.append((type(error), str(error)))
    assert results[0] == results[1]
