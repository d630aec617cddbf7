"""Calls that CPU refuses, or warns of, in CPU's words."""

from __future__ import annotations

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
