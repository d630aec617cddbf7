"""csrc/aten/random.cpp: distributions by their moments, reproducibility, and errors as on CPU."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from harness import DEVICE, check_call, fallbacks

import torch_xla
import torch_xla.debug.metrics as met

COUNT = 40_000


def empty(dtype=torch.float32, count=COUNT):
    return torch.empty(count, dtype=dtype, device=DEVICE)


def check_moments(tensor, mean, std):
    """The sample mean and deviation lie within five standard errors of the distribution's."""
    x = tensor.cpu().double()
    assert x.isfinite().all()
    error = 5 * std / math.sqrt(x.numel())
    assert abs(x.mean().item() - mean) < error + 1e-3 * abs(mean)
    assert abs(x.std().item() - std) < 4 * error + 1e-2 * std


FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", FLOATS)
def test_uniform(dtype):
    x = empty(dtype).uniform_(-2, 3)
    assert (x >= -2).all() and (x < 3).all()
    check_moments(x, 0.5, 5 / math.sqrt(12))
    u = torch.rand(COUNT, dtype=dtype, device=DEVICE)
    assert (u >= 0).all() and (u < 1).all()
    check_moments(u, 0.5, 1 / math.sqrt(12))


@pytest.mark.parametrize("dtype", FLOATS)
def test_normal(dtype):
    check_moments(torch.randn(COUNT, dtype=dtype, device=DEVICE), 0, 1)
    check_moments(empty(dtype).normal_(3, 0.5), 3, 0.5)
    z = torch.randn(COUNT, device=DEVICE).cpu()
    # Kolmogorov's distance from the distribution function.
    expected = torch.special.ndtr(z.double().sort().values)
    steps = (torch.arange(COUNT) + 0.5) / COUNT
    assert (expected - steps).abs().max() < 2 / math.sqrt(COUNT)


def test_normal_of_tensors():
    mean = torch.tensor([[0.0], [10.0]], device=DEVICE)
    std = torch.full((COUNT,), 2.0, device=DEVICE)
    x = torch.normal(mean, std)
    assert x.shape == (2, COUNT)
    check_moments(x[0], 0, 2)
    check_moments(x[1], 10, 2)
    check_moments(torch.normal(mean.expand(2, COUNT), 1.0)[1], 10, 1)
    check_moments(torch.normal(4.0, std), 4, 2)
    check_moments(torch.normal(4.0, 3.0, (COUNT,), device=DEVICE), 4, 3)


def test_complex():
    z = torch.randn(COUNT, dtype=torch.complex64, device=DEVICE).cpu()
    check_moments(z.real, 0, math.sqrt(0.5))
    check_moments(z.imag, 0, math.sqrt(0.5))
    u = torch.rand(COUNT, dtype=torch.complex64, device=DEVICE).cpu()
    check_moments(u.imag, 0.5, 1 / math.sqrt(12))
    assert not torch.equal(u.real, u.imag)


def test_continuous():
    check_moments(empty().exponential_(2.0), 0.5, 0.5)
    x = empty().log_normal_(0.5, 0.25).log()
    check_moments(x, 0.5, 0.25)
    c = empty().cauchy_(3.0, 2.0).cpu()
    assert abs(c.median().item() - 3) < 0.1
    assert abs(((c > 1) & (c < 5)).double().mean().item() - 0.5) < 0.02


def test_bernoulli():
    check_moments(empty().bernoulli_(0.3), 0.3, math.sqrt(0.21))
    check_moments(empty(torch.int64).bernoulli_(0.3), 0.3, math.sqrt(0.21))
    check_moments(empty(torch.bool).bernoulli_(0.3), 0.3, math.sqrt(0.21))
    p = torch.tensor([0.0, 0.5, 1.0], device=DEVICE)
    x = torch.bernoulli(p.expand(COUNT, 3)).cpu()
    assert (x[:, 0] == 0).all() and (x[:, 2] == 1).all()
    check_moments(x[:, 1], 0.5, 0.5)
    check_moments(empty().bernoulli_(torch.tensor(0.25, device=DEVICE)), 0.25, math.sqrt(0.1875))
    check_moments(torch.bernoulli(empty(), 0.75), 0.75, math.sqrt(0.1875))


def test_geometric():
    x = empty().geometric_(0.25)
    assert (x >= 1).all()
    check_moments(x, 4, math.sqrt(0.75) / 0.25)
    assert (empty(torch.int32).geometric_(0.5) >= 1).all()


@pytest.mark.parametrize(
    "dtype",
    [torch.uint8, torch.int8, torch.int32, torch.int64, torch.float32, torch.float16, torch.bool],
)
def test_integers(dtype):
    x = empty(dtype).random_().cpu()
    expected = torch.empty(COUNT, dtype=dtype).random_()
    assert x.dtype == dtype
    assert abs(x.double().mean() / expected.double().mean() - 1) < 0.05
    high = 2 if dtype == torch.bool else 7
    y = empty(dtype).random_(high).cpu()
    assert set(y.tolist()) == set(range(high))
    if dtype not in (torch.uint8, torch.bool):
        z = empty(dtype).random_(-3, 4).cpu()
        assert set(z.tolist()) == set(range(-3, 4))


def test_wide_integers():
    low, high = -(2**62), 2**62
    x = torch.randint(low, high, (COUNT,), device=DEVICE).cpu()
    assert (x >= low).all() and (x < high).all()
    assert x.unique().numel() == COUNT
    assert (x < 0).any() and (x > 0).any()
    full = empty(torch.int64).random_(-(2**63), None).cpu()
    assert (full < -(2**62)).any() and (full > 2**62).any()


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float32])
@pytest.mark.parametrize("n", [0, 1, 2, 1000])
def test_randperm(n, dtype):
    x = torch.randperm(n, dtype=dtype, device=DEVICE).cpu()
    assert x.dtype == dtype
    assert torch.equal(x.sort().values, torch.arange(n, dtype=dtype))
    if n > 2:
        assert not torch.equal(x, torch.arange(n, dtype=dtype))


@pytest.mark.parametrize("replacement", [True, False])
def test_multinomial(replacement):
    weights = torch.tensor([0.0, 1.0, 3.0, 0.0, 6.0, 0.0], device=DEVICE)
    rows = weights.expand(COUNT, 6)
    drawn = torch.multinomial(rows, 2, replacement=replacement).cpu()
    assert drawn.shape == (COUNT, 2) and drawn.dtype == torch.int64
    share = torch.bincount(drawn[:, 0], minlength=6) / COUNT
    assert (share - weights.cpu() / 10).abs().max() < 0.015
    if not replacement:
        assert (drawn[:, 0] != drawn[:, 1]).all()
    assert torch.multinomial(weights, 3, replacement=replacement).shape == (3,)
    assert torch.multinomial(weights, 1).item() in (1, 2, 4)


def test_reproducible():
    def everything():
        return [
            torch.rand(5, device=DEVICE),
            torch.randn(5, device=DEVICE),
            torch.randint(100, (5,), device=DEVICE),
            torch.randperm(5, device=DEVICE),
            F.dropout(torch.ones(50, device=DEVICE)),
        ]

    torch.manual_seed(7)
    first = [t.cpu() for t in everything()]
    second = [t.cpu() for t in everything()]
    torch.manual_seed(7)
    again = [t.cpu() for t in everything()]
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(first[:3], second[:3], strict=True))


def test_no_recompile():
    x = torch.ones(8, 8, device=DEVICE)

    def step(p, seed):
        torch.manual_seed(seed)
        y = F.dropout(x, p) + torch.rand(8, 8, device=DEVICE).uniform_(-p, p + seed)
        torch_xla.sync()
        return y

    step(0.05, 0)
    step(0.1, 1)
    compiled = met.metric_data("CompileTime")[0]
    for i in range(4):
        step(0.2 + i / 10, i + 2)
    assert met.metric_data("CompileTime")[0] == compiled


@pytest.mark.parametrize("p", [0.0, 0.25, 1.0])
def test_dropout(p):
    met.clear_counters()
    x = torch.full((COUNT,), 2.0, device=DEVICE, requires_grad=True)
    y = F.dropout(x, p)
    y.sum().backward()
    out, grad = y.detach().cpu(), x.grad.cpu()
    scale = 0.0 if p == 1 else 1 / (1 - p)
    assert ((out == 0) | (out == 2 * scale)).all()
    torch.testing.assert_close(grad * 2, out)
    assert abs((out == 0).double().mean().item() - p) < 0.02
    assert F.dropout(x, p, training=False) is x
    assert not fallbacks()


@pytest.mark.parametrize("training", [True, False])
def test_dropout_keeps_the_layout(training):
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    for device in ("cpu", DEVICE):
        input = x.to(device).requires_grad_()
        for dropped in (
            F.dropout(input, 0.5, training),
            *torch.native_dropout(input, 0.5, training),
        ):
            assert dropped.stride() == x.stride(), device
        (gradient,) = torch.autograd.grad(F.dropout(input, 0.5, training).square().sum(), [input])
        assert gradient.stride() == x.stride(), device


def test_dropout_backward_takes_both_layouts():
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    for given in (x, x.contiguous(), x[:, :1].expand_as(x), (100 * x).int()):
        check_call(torch.ops.aten.native_dropout_backward, (given, x > 0, 2.0))


def test_rrelu():
    x = torch.randn(COUNT, device=DEVICE, requires_grad=True)
    y = F.rrelu(x, 0.1, 0.4, training=True)
    y.sum().backward()
    slope = (y / x).detach().cpu()
    negative = (x < 0).cpu()
    assert (slope[negative] > 0.0999).all() and (slope[negative] < 0.4001).all()
    check_moments(slope[negative], 0.25, 0.3 / math.sqrt(12))
    torch.testing.assert_close(x.grad.cpu(), slope, rtol=1e-4, atol=1e-4)


ERRORS = {
    "uniform": lambda d: torch.ones(2, device=d).uniform_(2, 1),
    "uniform_int": lambda d: torch.ones(2, device=d).long().uniform_(),
    "uniform_half": lambda d: torch.ones(2, device=d).half().uniform_(0, 1e6),
    "normal_std": lambda d: torch.ones(2, device=d).normal_(0, -1),
    "normal_int": lambda d: torch.ones(2, device=d).long().normal_(),
    "normal_tensor_std": lambda d: torch.normal(torch.ones(2, device=d), -1.0),
    "bernoulli": lambda d: torch.ones(2, device=d).bernoulli_(2),
    "bernoulli_int": lambda d: torch.bernoulli(torch.ones(2, device=d).long()),
    "random_empty": lambda d: torch.ones(2, device=d).random_(5, 5),
    "random_bounds": lambda d: torch.ones(2, device=d).byte().random_(0, 300),
    "random_complex": lambda d: torch.ones(2, device=d).cfloat().random_(),
    "exponential": lambda d: torch.ones(2, device=d).exponential_(-1),
    "exponential_int": lambda d: torch.ones(2, device=d).long().exponential_(),
    "geometric": lambda d: torch.ones(2, device=d).geometric_(1.0),
    "log_normal": lambda d: torch.ones(2, device=d).log_normal_(0, -1),
    "cauchy": lambda d: torch.ones(2, device=d).cauchy_(0, -1),
    "multinomial_count": lambda d: torch.multinomial(torch.ones(2, device=d), 3),
    "multinomial_none": lambda d: torch.multinomial(torch.ones(2, device=d), 0),
    "multinomial_dims": lambda d: torch.multinomial(torch.ones(2, 2, 2, device=d), 1),
    "multinomial_int": lambda d: torch.multinomial(torch.ones(2, device=d).long(), 1),
    "randperm": lambda d: torch.randperm(-1, device=d),
    "randperm_bool": lambda d: torch.randperm(3, dtype=torch.bool, device=d),
    "rand_int": lambda d: torch.rand(2, dtype=torch.int64, device=d),
    "randn_size": lambda d: torch.randn(-1, device=d),
    "randint": lambda d: torch.randint(3, 2, (2,), device=d),
    "dropout": lambda d: torch.dropout(torch.ones(2, device=d), 2.0, True),
    "overlap": lambda d: torch.ones(1, device=d).expand(3).uniform_(),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    with pytest.raises(Exception) as expected:
        ERRORS[name]("cpu")
    with pytest.raises(expected.type):
        ERRORS[name](DEVICE)


def test_generator_of_another_device():
    with pytest.raises(RuntimeError, match="generator"):
        torch.rand(2, device=DEVICE, generator=torch.Generator("cpu"))
