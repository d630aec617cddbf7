"""Training real models on xla: the numbers of CPU eager, natively, in at most two programs."""

from __future__ import annotations

import pytest
import torch
from training import adamw, assert_same, compile_count, train
from zoo import CASES, Case

# rtol, and atol relative to a tensor's largest element.
TOLERANCE = {
    torch.float32: (1e-4, 1e-5),
    torch.float64: (1e-9, 1e-9),
    torch.bfloat16: (5e-2, 3e-2),
}


@pytest.fixture(params=CASES)
def case(request) -> Case:
    torch.manual_seed(0)
    return CASES[request.param]()


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_trains_as_on_cpu(case, device, no_fallback, dtype):
    expected = train(case, "cpu", dtype=dtype)
    got = train(case, device, dtype=dtype)
    rtol, atol = TOLERANCE[dtype]
    assert_same(got, expected, rtol=rtol, atol=atol)
    # The first step makes the optimizer's state; from the second on all are alike.
    assert compile_count() <= 2


def test_a_changing_learning_rate_compiles_nothing(case, device, metrics):
    train(case, device, steps=3)
    before = compile_count()

    def schedule(optimizer):
        return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

    got = train(case, device, steps=4, schedule=schedule)
    assert compile_count() == before
    assert_same(got, train(case, "cpu", steps=4, schedule=schedule), rtol=1e-4, atol=1e-5)


def test_evaluation_agrees_with_cpu(case, device, no_fallback):
    with torch.no_grad():
        expected = case.loss(case.model.eval(), case.batch)
        model = case.model.to(device)
        batch = {name: tensor.to(device) for name, tensor in case.batch.items()}
        got = case.loss(model, batch)
    torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=0)


def test_the_usual_epsilon_trains_too(device, no_fallback):
    torch.manual_seed(0)
    case = CASES["mlp"]()
    assert adamw(case.model.parameters()).defaults["eps"] != 1e-8
    assert_same(
        train(case, device, optimizer=torch.optim.AdamW),
        train(case, "cpu", optimizer=torch.optim.AdamW),
        rtol=1e-4,
        atol=1e-5,
    )
