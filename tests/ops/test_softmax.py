"""csrc/aten/softmax.cpp and nll_loss.cpp against CPU."""

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

OPS = ops(
    "softmax",
    "log_softmax",
    "nn.functional.softmin",
    "nn.functional.nll_loss",
    "nn.functional.cross_entropy",
)


@pytest.mark.parametrize("op, dtype", pairs(OPS, FLOAT_FIRST))
def test_values(op, dtype):
    for sample in samples(op, dtype, 6 if dtype == torch.float32 else 2):
        check_sample(op, sample, dtype)


@pytest.mark.parametrize("op, dtype", pairs(OPS, [torch.float32]))
def test_variants(op, dtype):
    for sample in samples(op, dtype, 2):
        check_variants(op, sample, dtype)


@pytest.mark.parametrize("op", [op for op in OPS if op.error_inputs_func], ids=lambda op: op.name)
def test_errors(op):
    check_errors(op)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("places", [(), (2, 3)])
@pytest.mark.parametrize("weighted", [False, True])
def test_ignored_targets(reduction, places, weighted):
    torch.manual_seed(0)
    x = torch.randn(4, 5, *places, requires_grad=True)
    target = torch.randint(0, 5, (4, *places))
    weight = torch.rand(5) if weighted else None
    for ignore_index in (-100, 2, int(target.flatten()[0])):
        check_call(
            lambda x, t, w, i=ignore_index: F.nll_loss(
                x.log_softmax(1), t, w, ignore_index=i, reduction=reduction
            ),
            (x, target, weight),
        )


def test_everything_ignored():
    x = torch.randn(2, 3, requires_grad=True)
    target = torch.full((2,), -100)
    check_call(lambda x, t: F.cross_entropy(x, t), (x, target))
    check_call(lambda x, t: F.cross_entropy(x, t, reduction="sum"), (x, target))


def test_label_smoothing_and_probabilities():
    x = torch.randn(3, 4, requires_grad=True)
    target = torch.tensor([0, 3, 1])
    check_call(lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1), (x, target))
    check_call(lambda x, t: F.cross_entropy(x, t), (x, torch.rand(3, 4).softmax(1)))


def test_a_target_that_is_no_class():
    x, target = torch.zeros(2, 3), torch.tensor([0, 7])
    message = "Target 7 is out of bounds"
    with pytest.raises(IndexError, match=message):
        F.cross_entropy(x, target)
    with pytest.raises(IndexError, match=message):
        F.cross_entropy(x.to(DEVICE), target.to(DEVICE))
    # The host does not know what a device computed: the program looks.
    computed = target.to(DEVICE) + torch.zeros(2, dtype=torch.int64, device=DEVICE)
    loss = F.cross_entropy(x.to(DEVICE), computed)
    with pytest.raises(IndexError, match=r"nll_loss.*7 is out of bounds"):
        loss.item()
    ignored = F.cross_entropy(x.to(DEVICE), target.to(DEVICE), ignore_index=7)
    assert ignored.item() == F.cross_entropy(x, target, ignore_index=7).item()


def test_softmax_of_infinities():
    inf = float("inf")
    x = torch.tensor([[-inf, -inf], [-inf, 1.0], [1.0, inf]])
    check_call(lambda x: (x.softmax(1), x.log_softmax(1), x.logsumexp(1)), (x,))
