"""Every optimizer of torch.optim at its defaults, on xla against CPU eager."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.optim.lr_scheduler import OneCycleLR
from training import assert_same, compile_count, train
from zoo import CASES, Case

OPTIMIZERS = [
    torch.optim.ASGD,
    torch.optim.Adadelta,
    torch.optim.Adafactor,
    torch.optim.Adagrad,
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.Adamax,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.RMSprop,
    torch.optim.Rprop,
    torch.optim.SGD,
]

# Their step in torch.optim reads numbers back from the device, and each read ends a program.
READING = (torch.optim.Adafactor,)

OPTIONS = {
    "amsgrad": lambda p: torch.optim.Adam(p, amsgrad=True, weight_decay=1e-2),
    "foreach": lambda p: torch.optim.AdamW(p, foreach=True),
    "lr in a tensor": lambda p: torch.optim.AdamW(p, lr=torch.tensor(1e-3)),
    "maximize": lambda p: torch.optim.Adam(p, maximize=True),
    "momentum": lambda p: torch.optim.SGD(p, momentum=0.9, weight_decay=1e-4),
    "nesterov": lambda p: torch.optim.SGD(p, momentum=0.9, nesterov=True),
    "centered": lambda p: torch.optim.RMSprop(p, centered=True, momentum=0.9),
}


@pytest.fixture
def case() -> Case:
    torch.manual_seed(0)
    return CASES["mlp"]()


def check(case: Case, device: torch.device, optimizer) -> None:
    expected = train(case, "cpu", optimizer=optimizer)
    got = train(case, device, optimizer=optimizer)
    assert_same(got, expected, rtol=1e-4, atol=1e-5)
    assert got.losses[-1] != got.losses[0]


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda kind: kind.__name__)
def test_defaults(case, device, no_fallback, optimizer):
    check(case, device, optimizer)
    assert compile_count() <= 2 or optimizer in READING


@pytest.mark.parametrize("name", OPTIONS)
def test_options(case, device, no_fallback, name):
    check(case, device, OPTIONS[name])
    assert compile_count() <= 2


def test_capturable(case, device, no_fallback):
    # The count of steps lives on the device too. On CPU torch does not offer this.
    got = train(case, device, optimizer=lambda p: torch.optim.AdamW(p, capturable=True))
    expected = train(case, "cpu", optimizer=torch.optim.AdamW)
    assert_same(got, expected, rtol=1e-4, atol=1e-5)
    assert compile_count() <= 2


def test_muon(case, device, no_fallback):
    # Muon is for matrices, and orthogonalizes in bfloat16.
    def optimizer(parameters):
        return torch.optim.Muon([p for p in parameters if p.dim() == 2])

    expected = train(case, "cpu", optimizer=optimizer)
    got = train(case, device, optimizer=optimizer)
    assert_same(got, expected, rtol=1e-2, atol=1e-3)
    assert compile_count() <= 2


def test_lbfgs(case, device, no_fallback):
    """LBFGS looks at the loss while it steps: programs end where it looks, numbers agree."""

    def run(where):
        model = copy.deepcopy(case.model).to(where)
        batch = {name: tensor.to(where) for name, tensor in case.batch.items()}
        optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)

        def closure():
            optimizer.zero_grad()
            loss = case.loss(model, batch)
            loss.backward()
            return loss

        losses = [optimizer.step(closure).item() for _ in range(3)]
        return losses, [parameter.detach().cpu() for parameter in model.parameters()]

    losses, parameters = run(device)
    expected_losses, expected_parameters = run("cpu")
    torch.testing.assert_close(losses, expected_losses, rtol=1e-4, atol=0)
    torch.testing.assert_close(parameters, expected_parameters, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.SGD])
def test_schedules_of_rate_and_momentum_are_data(case, device, no_fallback, optimizer):
    def make(parameters):
        options = {"momentum": 0.9} if optimizer is torch.optim.SGD else {}
        return optimizer(parameters, lr=1e-3, **options)

    def schedule(stepper):
        return OneCycleLR(stepper, max_lr=1e-2, total_steps=8)  # turns momentum and beta1 too

    got = train(case, device, optimizer=make, schedule=schedule, steps=8)
    assert compile_count() <= 2
    assert_same(
        got, train(case, "cpu", optimizer=make, schedule=schedule, steps=8), rtol=1e-4, atol=1e-5
    )


def test_state_dicts_travel_between_devices(case, device):
    model = case.model.to(device)
    batch = {name: tensor.to(device) for name, tensor in case.batch.items()}
    optimizer = torch.optim.AdamW(model.parameters())
    case.loss(model, batch).backward()
    optimizer.step()

    torch.manual_seed(0)
    twin = CASES["mlp"]()
    twin.model.load_state_dict(model.state_dict())
    resumed = torch.optim.AdamW(twin.model.parameters())
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for one, loss in (
        (optimizer, case.loss(model, batch)),
        (resumed, twin.loss(twin.model, twin.batch)),
    ):
        one.zero_grad()
        loss.backward()
        one.step()
    for ours, theirs in zip(model.parameters(), twin.model.parameters(), strict=True):
        assert theirs.device.type == "cpu"
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-4, atol=1e-6)
