"""Training real models on xla: the numbers of CPU eager, natively, in one program."""

from __future__ import annotations

import pytest
import torch
from training import adamw, assert_same, compile_count, train, trained_on_cpu
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


def programs(case: Case) -> int:
    """How many a training loop may compile: all steps are one program, the first too, which makes
    the optimizer's state; each value that a model reads back is one of its own."""
    return 1 + case.looks


def check_training(name: str, device: torch.device, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    case = CASES[name]()
    got = train(case, device, dtype=dtype)
    rtol, atol = TOLERANCE[dtype]
    exact = trained_on_cpu(name, torch.float64) if dtype == torch.float32 else None
    assert_same(got, trained_on_cpu(name, dtype), rtol=rtol, atol=atol, exact=exact)
    assert compile_count() <= programs(case)


@pytest.mark.parametrize("name", CASES)
def test_trains_as_on_cpu(name, device, no_fallback):
    check_training(name, device, torch.float32)


# Not gpt2 in f64, whose loss transformers compute in f32; nor resnet18 in bf16, where Adam turns
# the rounding of small gradients into steps of full size.
@pytest.mark.parametrize(
    "name, dtype",
    [
        ("mlp", torch.float64),
        ("resnet18", torch.float64),
        ("lstm", torch.float64),
        ("mlp", torch.bfloat16),
        ("gpt2", torch.bfloat16),
    ],
    ids=str,
)
def test_trains_in_other_types(device, no_fallback, name, dtype):
    check_training(name, device, dtype)


@pytest.mark.parametrize("name", ["mlp", "lstm"])
def test_a_changing_learning_rate_compiles_nothing(device, metrics, name):
    torch.manual_seed(0)
    case = CASES[name]()

    def schedule(optimizer):
        return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

    train(case, device, steps=6, schedule=schedule)
    assert compile_count() <= programs(case)


@pytest.fixture
def no_nested_tensors():
    # torch's fast path for encoders exists on CPU and CUDA only, and zeroes what is padding.
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.backends.mha.set_fastpath_enabled(before)


def test_evaluation_agrees_with_cpu(case, device, no_fallback, no_nested_tensors):
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
