"""csrc/aten/activation.cpp against CPU."""

from __future__ import annotations

import pytest
import torch
from harness import check_errors, check_sample, check_variants, ops, pairs, samples

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


@pytest.mark.parametrize("op, dtype", pairs(OPS))
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
