"""csrc/aten/normalization.cpp and batch_norm.cpp against CPU."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from harness import (
    DEVICE,
    check_call,
    check_equal,
    check_errors,
    check_sample,
    check_variants,
    copy_to,
    ops,
    pairs,
    samples,
)

OPS = ops(
    "nn.functional.layer_norm",
    "nn.functional.group_norm",
    "nn.functional.batch_norm",
    "nn.functional.instance_norm",
    "nn.functional.rms_norm",
    "native_layer_norm",
    "native_batch_norm",
    "_native_batch_norm_legit",
    "nn.functional.local_response_norm",
    "nn.functional.normalize",
)
FLOATS = (torch.float32, torch.bfloat16, torch.float64)


@pytest.mark.parametrize("op, dtype", pairs(OPS, FLOATS))
def test_values(op, dtype):
    for sample in samples(op, dtype, 4 if dtype == torch.float32 else 2):
        check_sample(op, sample, dtype)


@pytest.mark.parametrize("op, dtype", pairs(OPS, [torch.float32]))
def test_variants(op, dtype):
    for sample in samples(op, dtype, 2):
        check_variants(op, sample, dtype)


@pytest.mark.parametrize("op", [op for op in OPS if op.error_inputs_func], ids=lambda op: op.name)
def test_errors(op):
    check_errors(op)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("parameters", [None, "same", "float"])
def test_statistics_dtypes(dtype, parameters):
    torch.manual_seed(0)
    x = torch.randn(2, 4, 3).to(dtype)

    def weight(size):
        if parameters is None:
            return None
        return torch.rand(size).to(dtype if parameters == "same" else torch.float32)

    check_call(lambda x, w: torch.native_layer_norm(x, (3,), w, w, 1e-5), (x, weight(3)))
    check_call(lambda x, w: torch.native_group_norm(x, w, w, 2, 4, 3, 2, 1e-5), (x, weight(4)))
    check_call(
        lambda x, w: torch.native_batch_norm(x, w, w, None, None, True, 0.1, 1e-5), (x, weight(4))
    )


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("layout", ["rows", "channels_last"])
def test_batch_norm_module(training, affine, layout):
    torch.manual_seed(0)
    x = torch.randn(3, 4, 5, 2) * 3 + 1
    if layout == "channels_last":
        x = x.to(memory_format=torch.channels_last)
    results = []
    for device in ("cpu", DEVICE):
        torch.manual_seed(1)
        module = torch.nn.BatchNorm2d(4, affine=affine, momentum=0.3).to(device).train(training)
        with torch.no_grad():
            module.running_mean += 0.5
            module.running_var *= 2
        own = copy_to(x, device).requires_grad_()
        y = module(own)
        (y * y).sum().backward()
        results.append(
            (y, own.grad, dict(module.named_buffers()), [p.grad for p in module.parameters()])
        )
    check_equal(results[0][0], results[1][0])
    check_equal(results[0][1:], results[1][1:], strides=False)


def test_momentum_and_epsilon_do_not_recompile():
    import torch_xla
    import torch_xla.debug.metrics as met

    x = torch.randn(4, 3, device=DEVICE)
    mean, var = torch.zeros(3, device=DEVICE), torch.ones(3, device=DEVICE)

    def step(momentum, eps):
        F.batch_norm(F.layer_norm(x, (3,), eps=eps), mean, var, None, None, True, momentum, eps)
        torch_xla.sync()

    step(0.1, 1e-5)
    step(0.2, 1e-5)
    before = met.metric_data("CompileTime")[0]
    step(0.3, 1e-3)
    assert met.metric_data("CompileTime")[0] == before


def test_evaluation_needs_running_statistics():
    with pytest.raises(RuntimeError, match="running_mean must be defined in evaluation mode"):
        torch.native_batch_norm(
            torch.randn(2, 3, device=DEVICE), None, None, None, None, False, 0.1, 1e-5
        )
