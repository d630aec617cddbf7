"""Calls that CPU refuses, or warns of, in CPU's words."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from harness import DEVICE, check_equal

SHARED = "more than one element of the written-to tensor refers to a single memory location"


def same_refusal(call) -> None:
    """Both devices raise one type of exception with one text, or give the same."""
    try:
        expected = call("cpu")
    except (RuntimeError, IndexError, NotImplementedError) as error:
        with pytest.raises(type(error)) as raised:
            call(DEVICE)
        assert type(raised.value) is type(error)
        assert str(raised.value).replace("XLA", "").replace("CPU", "") == str(error).replace(
            "CPU", ""
        )
    else:
        check_equal(expected, call(DEVICE))


def index(device, *positions: int) -> torch.Tensor:
    return torch.tensor(positions).to(device)


# --- Numbers that a dtype cannot hold ---

# Each takes a tensor of one dtype and a number.
TAKING_NUMBERS = {
    "clamp": lambda x, n: x.clamp(n, n),
    "clamp of the least": lambda x, n: x.clamp(min=n),
    "clamp_": lambda x, n: x.clamp_(max=n),
    "clamp_min": lambda x, n: x.clamp_min(n),
    "clamp_max": lambda x, n: x.clamp_max(n),
    "index_fill": lambda x, n: x.index_fill(0, index(x.device, 0), n),
    "scatter": lambda x, n: x.scatter(0, index(x.device, 0).expand(1, 4), n),
    "scatter, added": lambda x, n: x.scatter(0, index(x.device, 0).expand(1, 4), n, reduce="add"),
    "pad": lambda x, n: torch.constant_pad_nd(x, (1, 1), n),
    "threshold": lambda x, n: F.threshold(x, 0, n),
    "linspace": lambda x, n: torch.linspace(0, n, 3, dtype=x.dtype, device=x.device),
    "index_add": lambda x, n: x.index_add(0, index(x.device, 0), x[:1], alpha=n),
    "addmm": lambda x, n: torch.addmm(x, x, x.mT @ x, alpha=n),
    "addmv": lambda x, n: torch.addmv(x[:, 0], x, x[0], alpha=n),
    "addcmul": lambda x, n: torch.addcmul(x, x, x, value=n),
    "add": lambda x, n: torch.add(x, x, alpha=n),
}
NUMBERS = [1e6, 1e300, 300, -1, 1.5, float("nan"), float("inf")]


@pytest.mark.parametrize("name", TAKING_NUMBERS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int8, torch.uint8], ids=str)
@pytest.mark.parametrize("number", NUMBERS, ids=str)
def test_numbers_that_do_not_fit(name, dtype, number):
    function = TAKING_NUMBERS[name]
    if name == "linspace" and number - number != 0:
        pytest.skip("infinite steps: not the same NaNs")
    same_refusal(lambda device: function(torch.ones(3, 4).to(dtype).to(device), number))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.clamp(max=1j),
        lambda x: x.scatter(0, index(x.device, 0).expand(1, 4), 1j),
        lambda x: torch.constant_pad_nd(x, (1, 1), 1j),
        lambda x: F.threshold(x, 0, 1j),
        lambda x: F.elu(x, 1j),
        lambda x: F.leaky_relu(x, 1j),
        lambda x: F.softplus(x, 1j),
        lambda x: F.hardshrink(x, 1j),
        lambda x: torch.addcdiv(x, x, x, value=1j),
        lambda x: torch.lerp(x, x, 1j),
        lambda x: torch.addmm(x, x, x.mT @ x, beta=1j),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_complex_numbers_beside_reals(function, dtype):
    same_refusal(lambda device: function(torch.ones(3, 4, dtype=dtype).to(device)))


# --- Elements that share their memory ---


def expanded(device, *sizes: int) -> torch.Tensor:
    return torch.arange(4.0, device=device).expand(*sizes)


WRITING = {
    "addmm_": lambda x, y: x.addmm_(y, y),
    "addbmm_": lambda x, y: x.addbmm_(y[None], y[None]),
    "addmm.out": lambda x, y: torch.addmm(y, y, y, out=x),
    "mm.out": lambda x, y: torch.mm(y, y, out=x),
    "addmv.out": lambda x, y: torch.addmv(y[0], y, y[0], out=x[:, 0]),
    "sort.out": lambda x, y: torch.sort(y, out=(x, torch.zeros_like(y, dtype=torch.long))),
    "topk.out": lambda x, y: torch.topk(y, 4, out=(x, torch.zeros_like(y, dtype=torch.long))),
    "max.out": lambda x, y: torch.max(
        y.expand(2, 4, 4), 0, out=(x, torch.zeros_like(y, dtype=torch.long))
    ),
    "renorm_": lambda x, y: x.renorm_(2, 0, 1.0),
    "arange.out": lambda x, y: torch.arange(4.0, out=x[:, 0]),
    "linspace.out": lambda x, y: torch.linspace(0, 1, 4, out=x[:, 0]),
}


@pytest.mark.parametrize("name", WRITING)
def test_elements_in_one_place_are_not_written(name):
    for device in ("cpu", DEVICE):
        with pytest.raises(RuntimeError, match=SHARED):
            WRITING[name](expanded(device, 4, 4), torch.ones(4, 4, device=device))


# --- Tensors that do not suit ---

CALLS = {
    "nonzero into floats": lambda d: torch.nonzero(
        torch.ones(3, device=d), out=torch.empty(0, device=d)
    ),
    "searchsorted into floats": lambda d: torch.searchsorted(
        torch.ones(3, device=d), torch.ones(3, device=d), out=torch.empty(0, device=d)
    ),
    "bucketize of another width": lambda d: torch.bucketize(
        torch.ones(3, device=d),
        torch.ones(3, device=d),
        out_int32=True,
        out=torch.empty(0, dtype=torch.long, device=d),
    ),
    "zero point beyond": lambda d: torch.fake_quantize_per_tensor_affine(
        torch.ones(3, device=d), 0.1, 300, 0, 255
    ),
    "quantized to no numbers": lambda d: torch.fake_quantize_per_tensor_affine(
        torch.ones(3, device=d), 0.1, 7, 10, 5
    ),
    "zero points of another dtype": lambda d: torch.fake_quantize_per_channel_affine(
        torch.ones(2, 2, device=d), torch.ones(2, device=d), index(d, 1, 1), 0, 0, 255
    ),
    "too many scales": lambda d: torch.fake_quantize_per_channel_affine(
        torch.ones(2, 2, device=d), torch.ones(3, device=d), index(d, 1, 1, 1).int(), 0, 0, 255
    ),
    "scales of no dimension": lambda d: torch.fake_quantize_per_channel_affine(
        torch.ones(2, 2, device=d), torch.ones(2, device=d), index(d, 1, 1).int(), 3, 0, 255
    ),
    "largest of none": lambda d: torch.zeros(0, device=d).norm(float("inf")),
    "largest of an empty dimension": lambda d: torch.zeros(2, 0, device=d).norm(float("inf"), 1),
    "float repeats": lambda d: torch.ones(2, device=d).repeat_interleave(torch.ones(2, device=d)),
    "dropout of integers": lambda d: F.dropout(torch.ones(3, dtype=torch.int32, device=d)),
    "dropout of all integers": lambda d: F.dropout(torch.ones(3, dtype=torch.int32, device=d), 1.0),
    "masked_fill by bytes": lambda d: torch.ones(3, device=d).masked_fill(
        torch.ones(3, dtype=torch.uint8, device=d), 1.0
    ),
    "assignment by bytes": lambda d: torch.ones(3, device=d).__setitem__(
        torch.ones(3, dtype=torch.uint8, device=d), 1.0
    ),
    "masked_select": lambda d: torch.ones(3, device=d).masked_select(torch.ones(4, device=d) > 0),
    "bag offsets beyond": lambda d: F.embedding_bag(
        index(d, 0, 1), torch.ones(3, 2, device=d), offsets=index(d, 0, 5)
    ),
    "unpooled to nowhere": lambda d: F.max_unpool2d(
        torch.ones(1, 1, 2, 2, device=d), index(d, 0, 1, 2, 99).view(1, 1, 2, 2), 2
    ),
    "unpooled to nowhere, in 3-d": lambda d: F.max_unpool3d(
        torch.ones(1, 1, 2, 2, 1, device=d), index(d, 0, 1, 2, -1).view(1, 1, 2, 2, 1), 2
    ),
    "bias of addmm": lambda d: torch.addmm(
        torch.ones(3, device=d), torch.ones(2, 4, device=d), torch.ones(4, 4, device=d)
    ),
    "bias of rank 3": lambda d: torch.addbmm(
        torch.ones(3, 4, device=d), torch.ones(2, 4, 4, device=d), torch.ones(2, 4, 4, device=d)
    ),
    "bias of linear": lambda d: F.linear(
        torch.ones(2, 2, 4, device=d), torch.ones(4, 4, device=d), torch.ones(3, device=d)
    ),
    "bias of a vector's linear": lambda d: F.linear(
        torch.ones(4, device=d), torch.ones(4, 4, device=d), torch.ones(3, device=d)
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_wrong_tensors(name):
    same_refusal(CALLS[name])


def test_bags_begin_with_the_first_index(device):
    weight, indices = torch.ones(3, 2, device=device), index(device, 0, 1)
    with pytest.raises(RuntimeError, match=r"offsets\[0\] has to be 0, .* got 1"):
        F.embedding_bag(indices, weight, offsets=index(device, 1))
    late = F.embedding_bag(indices, weight, offsets=(torch.ones(1, device=device) * 1).long())
    with pytest.raises(RuntimeError, match=r"offsets\[0\] has to be 0"):
        late.cpu()


def test_no_angle_of_two_complex_numbers(device):
    x = torch.ones(2, dtype=torch.complex64, device=device)
    with pytest.raises(NotImplementedError, match="not implemented for 'ComplexFloat'"):
        torch.atan2(x, x)


# --- Warnings ---


def warned(call, device) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(device)
    return [str(warning.message).split(" (Triggered")[0] for warning in caught]


@pytest.mark.parametrize(
    "call",
    [
        lambda d: torch.zeros(0, device=d).var(),
        lambda d: torch.zeros(0, 3, device=d).var(1),
        lambda d: torch.zeros(0, device=d).var(correction=0),
        lambda d: torch.ones(1, device=d).std(),
        lambda d: expanded(d, 4, 4).index_put_((index(d, 0),), torch.ones(4, device=d)),
        lambda d: expanded(d, 4, 4).index_fill_(0, index(d, 0), 1.0),
        lambda d: expanded(d, 4, 4).masked_fill_(torch.ones(4, device=d) > 0, 1.0),
        lambda d: torch.ones(3, device=d)[torch.ones(3, dtype=torch.uint8, device=d)],
    ],
)
def test_warnings(call):
    expected = warned(call, "cpu")
    assert expected and warned(call, DEVICE) == expected


def test_variance_of_none():
    for correction in (0, 1, -3):
        same_refusal(lambda d, c=correction: torch.zeros(0, 5, device=d).var(correction=c))
        same_refusal(lambda d, c=correction: torch.var_mean(torch.zeros(0, device=d), correction=c))
