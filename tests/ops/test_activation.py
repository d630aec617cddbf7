"""csrc/aten/activation.cpp against CPU."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
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

import torch_xla
import torch_xla.debug.metrics as met

OPS = ops(
    "logit",
    "nn.functional.celu",
    "nn.functional.elu",
    "nn.functional.gelu",
    "nn.functional.glu",
    "nn.functional.hardshrink",
    "nn.functional.hardsigmoid",
    "nn.functional.hardswish",
    "nn.functional.hardtanh",
    "nn.functional.leaky_relu",
    "nn.functional.logsigmoid",
    "nn.functional.mish",
    "nn.functional.prelu",
    "nn.functional.relu",
    "nn.functional.relu6",
    "nn.functional.selu",
    "nn.functional.silu",
    "nn.functional.softplus",
    "nn.functional.softshrink",
    "nn.functional.softsign",
    "nn.functional.tanhshrink",
    "nn.functional.threshold",
    "sigmoid",
    "tanh",
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


@pytest.mark.filterwarnings("ignore:TF32")
def test_edges():
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([nan, inf, -inf, 0.0, -0.0, -3.0, 3.0, 0.5, -0.5, 100.0, -100.0])
    with torch.backends.mkldnn.flags(enabled=False):  # where oneDNN's is used, gelu(inf) is NaN
        check_call(F.gelu, (x.requires_grad_(),))
    for name in ("relu", "silu", "mish", "hardtanh", "hardswish", "hardsigmoid", "elu"):
        check_call(getattr(F, name), (x.requires_grad_(),))
    for name in ("leaky_relu", "softplus", "softshrink", "hardshrink", "logsigmoid", "sigmoid"):
        check_call(getattr(F, name), (x,))
    for scale in (0.1, 0.2):
        check_call(lambda x, s=scale: F.threshold(F.leaky_relu(x, s), s, 20.0), (x,))


@pytest.mark.parametrize("shrink", [F.hardshrink, F.softshrink])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("limit", [0.1, 0.3, 0.5, 0.7])
def test_limits_beside_halves(shrink, dtype, limit):
    """Which numbers are at the limit depends on how it is rounded."""
    at = torch.tensor(limit).to(dtype)

    def run(device):
        x = torch.stack([at, -at, at * 1.01, at * 0.99]).repeat(16).to(device).requires_grad_()
        y = shrink(x, limit)
        y.sum().backward()
        return torch.stack([y.detach(), x.grad]).cpu()

    assert torch.equal(run(DEVICE), run("cpu"))


def test_numbers_are_data():
    """Another slope or limit is another number, not another program."""
    x = torch.randn(4, 5, device=DEVICE)

    def step(value):
        y = F.leaky_relu(F.hardtanh(F.elu(x, value), -value, value), value)
        return F.softplus(y, value).clamp(value / 2, value) * value

    torch_xla.sync()
    step(0.25).cpu()
    compiled = met.metric_data("CompileTime")[0]
    for value in (0.3, 0.4, 1.7):
        step(value).cpu()
    assert met.metric_data("CompileTime")[0] == compiled
