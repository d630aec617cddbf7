"""csrc/aten/pooling.cpp, adaptive_pooling.cpp and windows.cpp against CPU."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from harness import check_call, check_errors, check_sample, ops, pairs, samples

OPS = ops(
    *(f"nn.functional.{kind}_pool{n}d" for kind in ("max", "avg") for n in (1, 2, 3)),
    *(f"nn.functional.adaptive_{kind}_pool{n}d" for kind in ("max", "avg") for n in (1, 2, 3)),
    *(f"nn.functional.max_unpool{n}d" for n in (1, 2, 3)),
    "max_pool2d_with_indices_backward",
)


@pytest.mark.parametrize("op, dtype", pairs(OPS))
def test_values(op, dtype):
    for sample in samples(op, dtype, 5 if dtype == torch.float32 else 2):
        check_sample(op, sample, dtype)


@pytest.mark.parametrize("op", [op for op in OPS if op.error_inputs_func], ids=lambda op: op.name)
def test_errors(op):
    check_errors(op)


LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def image(*sizes, last=False):
    x = torch.randn(*sizes)
    if last:
        x = x.to(memory_format=LAST[len(sizes)])
    return x.requires_grad_()


WINDOWS = [
    dict(kernel_size=2),
    dict(kernel_size=3, stride=2, padding=1),
    dict(kernel_size=(3, 2), stride=(1, 3), padding=(1, 0)),
    dict(kernel_size=3, stride=2, padding=1, ceil_mode=True),
    dict(kernel_size=2, stride=3, ceil_mode=True),
    dict(kernel_size=(9, 1), stride=1),
]


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("last", [False, True])
def test_max(window, last):
    check_call(
        lambda x: F.max_pool2d(x, **window, return_indices=True), (image(2, 3, 9, 8, last=last),)
    )


@pytest.mark.parametrize("dilation", [1, 2, 3])
def test_max_dilated(dilation):
    check_call(
        lambda x: F.max_pool2d(x, 3, 2, 1, dilation, return_indices=True), (image(1, 2, 11, 13),)
    )


@pytest.mark.parametrize("kernel", [33, 40, 64])
def test_large_windows(kernel):
    x = image(2, 3, 80)
    check_call(lambda x: F.max_pool1d(x, kernel, 7, kernel // 2, return_indices=True), (x,))
    check_call(lambda x: F.avg_pool1d(x, kernel, 7, kernel // 2), (x,))


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("divisor", [None, 5])
def test_average(window, include, divisor):
    arguments = dict(window, count_include_pad=include, divisor_override=divisor)
    check_call(lambda x: F.avg_pool2d(x, **arguments), (image(2, 3, 9, 8, last=include),))


@pytest.mark.parametrize("last", [False, True])
def test_volumes(last):
    x = image(2, 3, 6, 7, 5, last=last)
    check_call(lambda x: F.max_pool3d(x, 3, 2, 1, return_indices=True), (x,))
    check_call(lambda x: F.avg_pool3d(x, 3, 2, 1, count_include_pad=False), (x,))
    check_call(lambda x: F.adaptive_avg_pool3d(x, (3, 4, 5)), (x,))
    check_call(lambda x: F.adaptive_max_pool3d(x, (3, 4, 5), return_indices=True), (x,))


@pytest.mark.parametrize("size", [1, 3, (4, 2), (9, 8), (None, 5), (12, 20)])
@pytest.mark.parametrize("last", [False, True])
def test_adaptive(size, last):
    x = image(2, 3, 9, 8, last=last)
    check_call(lambda x: F.adaptive_avg_pool2d(x, size), (x,))
    check_call(lambda x: F.adaptive_max_pool2d(x, size, return_indices=True), (x,))


def test_adaptive_from_many():
    x = image(1, 2, 100)
    check_call(lambda x: F.adaptive_avg_pool1d(x, 3), (x,))
    check_call(lambda x: F.adaptive_max_pool1d(x, 3, return_indices=True), (x,))


def test_nans_ties_and_infinities():
    inf, nan = math.inf, math.nan
    x = torch.tensor(
        [[1.0, nan, 2, 2], [nan, 0, 2, 2], [-inf, -inf, 5, -inf], [-inf, -inf, nan, inf]]
    )
    for padding in (0, 1):
        check_call(
            lambda x, padding=padding: F.max_pool2d(x[None], 2, 1, padding, return_indices=True),
            (x,),
        )
    check_call(lambda x: F.adaptive_max_pool2d(x[None], 3, return_indices=True), (x,))
    check_call(lambda x: F.max_pool1d(x, 3, 1, 1, return_indices=True), (torch.full((1, 4), -inf),))
    check_call(lambda x: F.avg_pool2d(x[None], 2, 1), (x,))
    check_call(lambda x: F.adaptive_avg_pool2d(x[None], 3), (x,))


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.int32])
def test_integers(dtype):
    x = torch.randint(0, 9, (1, 2, 6, 6)).to(dtype)
    check_call(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), (x,))


def test_unpool_keeps_layout():
    x = image(2, 3, 6, 8, last=True)

    def there_and_back(x):
        return F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2)

    check_call(there_and_back, (x,))
