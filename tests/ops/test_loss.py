"""csrc/aten/loss.cpp and margin_loss.cpp against CPU."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from harness import check_call, check_errors, check_sample, check_variants, ops, pairs, samples

OPS = ops(
    "nn.functional.binary_cross_entropy",
    "nn.functional.binary_cross_entropy_with_logits",
    "nn.functional.huber_loss",
    "nn.functional.kl_div",
    "nn.functional.l1_loss",
    "nn.functional.multi_margin_loss",
    "nn.functional.multilabel_margin_loss",
    "nn.functional.mse_loss",
    "nn.functional.poisson_nll_loss",
    "nn.functional.smooth_l1_loss",
    "nn.functional.soft_margin_loss",
    "nn.functional.gaussian_nll_loss",
    "nn.functional.multilabel_soft_margin_loss",
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


def test_binary_cross_entropy_is_laid_out_as_its_input():
    probability, target = torch.rand(3, 4).t(), torch.rand(3, 4).t()
    check_call(lambda p, t: F.binary_cross_entropy(p, t, reduction="none"), (probability, target))
