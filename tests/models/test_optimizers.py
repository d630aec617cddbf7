"""Every optimizer of torch.optim, in each of its forms, on xla against CPU eager."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable

import pytest
import torch
from torch.optim.lr_scheduler import OneCycleLR
from training import assert_same, compile_count, train
from zoo import CASES, Case

import torch_xla

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

# Every argument that adds a line to the formula.
OPTIONS = {
    "ASGD": (torch.optim.ASGD, {"weight_decay": 1e-2, "maximize": True}),
    "Adadelta": (torch.optim.Adadelta, {"weight_decay": 1e-2, "maximize": True}),
    "Adafactor": (torch.optim.Adafactor, {"weight_decay": 1e-2, "maximize": True}),
    "Adagrad": (
        torch.optim.Adagrad,
        {"lr_decay": 0.1, "weight_decay": 1e-2, "initial_accumulator_value": 0.1},
    ),
    "Adagrad-maximize": (torch.optim.Adagrad, {"maximize": True}),
    "Adam": (torch.optim.Adam, {"weight_decay": 1e-2, "maximize": True, "betas": (0.4, 0.9)}),
    "Adam-amsgrad": (torch.optim.Adam, {"amsgrad": True}),
    "AdamW-amsgrad": (torch.optim.AdamW, {"amsgrad": True, "maximize": True}),
    "Adamax": (torch.optim.Adamax, {"weight_decay": 1e-2, "maximize": True}),
    "NAdam": (torch.optim.NAdam, {"weight_decay": 1e-2, "decoupled_weight_decay": True}),
    "RAdam": (torch.optim.RAdam, {"weight_decay": 1e-2, "maximize": True}),
    "RMSprop": (torch.optim.RMSprop, {"weight_decay": 1e-2, "momentum": 0.9, "centered": True}),
    "Rprop": (torch.optim.Rprop, {"maximize": True}),
    "SGD-momentum": (torch.optim.SGD, {"momentum": 0.9, "dampening": 0.1, "weight_decay": 1e-2}),
    "SGD-nesterov": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "maximize": True}),
}

FUSED = (torch.optim.Adagrad, torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD)
WITHOUT_CAPTURABLE = (torch.optim.Adafactor, torch.optim.Adagrad, torch.optim.SGD)

# Numbers read back from the device, each of which ends a program: Adafactor's norms, and masks of
# rank 0 that Rprop indexes with (of parameters of rank 0, that is).
READING = (torch.optim.Adafactor, torch.optim.Rprop)

MakeOptimizer = Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]


def run(
    make: MakeOptimizer, device: torch.device | str, dtype: torch.dtype = torch.float32
) -> tuple[list[torch.Tensor], dict]:
    """The parameters on CPU, and the optimizer's state, after steps along drawn gradients."""
    torch.manual_seed(0)
    shapes = ((4, 3), (3,), (2, 1, 3), ())
    parameters = [torch.nn.Parameter(torch.randn(s, dtype=dtype).to(device)) for s in shapes]
    optimizer = make(parameters)
    for _ in range(4):
        for parameter in parameters:
            parameter.grad = torch.randn(parameter.shape, dtype=dtype).to(device)
        optimizer.step()
        torch_xla.sync()
    return [parameter.detach().cpu() for parameter in parameters], optimizer.state_dict()


def check(
    make: MakeOptimizer,
    make_reference: MakeOptimizer,
    device: torch.device,
    *,
    counts_on_device: bool = False,
    reads: bool = False,
    dtype: torch.dtype = torch.float32,
) -> None:
    """Parameters and state are those of CPU; the first step is a program, the others another."""
    expected, expected_state = run(make_reference, "cpu", dtype)
    got, state = run(make, device, dtype)
    assert compile_count() <= 2 or reads
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    assert list(state["state"]) == list(expected_state["state"])
    for index, want in expected_state["state"].items():
        have = state["state"][index]
        assert list(have) == list(want)
        for name, value in want.items():
            if not isinstance(value, torch.Tensor):
                assert have[name] == value
                continue
            if name == "step":
                assert have[name].device.type == ("xla" if counts_on_device else "cpu")
            # Dtypes of what counts are torch's choice of the form.
            torch.testing.assert_close(
                have[name].cpu().to(value.dtype), value, rtol=1e-4, atol=1e-5
            )


@pytest.mark.parametrize("form", [None, True, False], ids=["default", "foreach", "loop"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda kind: kind.__name__)
def test_forms(device, no_fallback, optimizer, form):
    asgd = optimizer is torch.optim.ASGD  # its counts are always beside the parameters
    check(
        lambda p: optimizer(p, foreach=form),
        optimizer,
        device,
        counts_on_device=asgd,
        # ASGD's loop looks at its averages to see whether they began.
        reads=optimizer in READING or (asgd and form is False),
    )


@pytest.mark.parametrize("name", OPTIONS)
def test_options(device, no_fallback, name):
    optimizer, options = OPTIONS[name]

    def make(parameters):
        return optimizer(parameters, **options)

    on_device = optimizer is torch.optim.ASGD
    check(make, make, device, counts_on_device=on_device, reads=optimizer in READING)


@pytest.mark.parametrize("name", [name for name in OPTIONS if OPTIONS[name][0] in FUSED])
def test_fused(device, no_fallback, name):
    optimizer, options = OPTIONS[name]
    check(
        lambda p: optimizer(p, fused=True, **options),
        lambda p: optimizer(p, **options),
        device,
        counts_on_device=True,
    )


CAPTURABLE = [name for name in OPTIONS if OPTIONS[name][0] not in WITHOUT_CAPTURABLE]


@pytest.mark.parametrize(
    "name, form", [*((name, None) for name in CAPTURABLE), ("Adam", False), ("ASGD", False)]
)
def test_capturable(device, no_fallback, name, form):
    """The count of steps lives on the device too. On CPU torch does not offer this."""
    optimizer, options = OPTIONS[name]
    check(
        lambda p: optimizer(p, capturable=True, foreach=form, **options),
        lambda p: optimizer(p, **options),
        device,
        counts_on_device=True,
    )


@pytest.mark.parametrize("where", ["cpu", "xla"])
@pytest.mark.parametrize(
    "options", [{"fused": True}, {"capturable": True}], ids=["fused", "foreach"]
)
def test_rate_in_a_tensor(device, no_fallback, options, where):
    check(
        lambda p: torch.optim.AdamW(p, lr=torch.tensor(1e-2, device=where), **options),
        lambda p: torch.optim.AdamW(p, lr=1e-2),
        device,
        counts_on_device=True,
    )


def test_rate_in_a_tensor_by_default(device, no_fallback):
    def make(parameters):
        return torch.optim.AdamW(parameters, lr=torch.tensor(1e-2))

    check(make, make, device)


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.SGD])
def test_complex_parameters(device, no_fallback, optimizer):
    check(optimizer, optimizer, device, dtype=torch.complex64)


def test_muon(device, no_fallback):
    # Muon is for matrices, and orthogonalizes in bfloat16.
    def make(parameters):
        return torch.optim.Muon([p for p in parameters if p.dim() == 2])

    got, _ = run(make, device)
    assert compile_count() <= 2
    torch.testing.assert_close(got, run(make, "cpu")[0], rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("optimizer", FUSED, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("overflow", [0.0, 1.0])
def test_fused_step_of_a_gradient_scaler(device, no_fallback, optimizer, overflow):
    """Gradients are divided by the scale, and an overflow leaves everything as it was."""

    def make(where):
        def scaled(parameters):
            stepper = optimizer(parameters, fused=True)
            stepper.grad_scale = torch.tensor(4.0, device=where)
            stepper.found_inf = torch.tensor(overflow, device=where)
            return stepper

        return scaled

    check(make(device), make("cpu"), device, counts_on_device=True)


@pytest.mark.parametrize("fused", [False, True], ids=["foreach", "fused"])
def test_gradient_scaler(device, no_fallback, fused):
    """torch's own GradScaler, with an overflow on the way."""

    def losses(where):
        torch.manual_seed(0)
        weight = torch.nn.Parameter(torch.randn(4, 3).to(where))
        optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9, fused=fused)
        scaler = torch.amp.GradScaler(torch.device(where).type, init_scale=8.0, growth_interval=2)
        for factor in (1.0, 2.0, float("inf"), 3.0):
            optimizer.zero_grad()
            scaler.scale((weight * factor).square().mean()).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_([weight], 1.0)
            scaler.step(optimizer)
            scaler.update()
        return weight.detach().cpu(), scaler.get_scale()

    torch.testing.assert_close(losses(device), losses("cpu"), rtol=1e-5, atol=1e-6)


def test_fused_errors(device):
    weight = torch.zeros(3, device=device)
    options = {"weight_decay": 0.0, "lr": 0.1, "dampening": 0.0, "nesterov": False}
    options |= {"maximize": False, "is_first_step": False}

    def step(gradients, momenta, momentum=0.0):
        torch._fused_sgd_([weight], gradients, momenta, momentum=momentum, **options)

    with pytest.raises(RuntimeError, match="expected 1 tensors in each list"):
        step([weight, weight], [])
    with pytest.raises(RuntimeError, match=r"parameter's sizes \[3\], got \[4\]"):
        step([torch.zeros(4, device=device)], [])
    with pytest.raises(RuntimeError, match="floating point tensors, got Long"):
        step([torch.zeros(3, device=device, dtype=torch.int64)], [])
    with pytest.raises(RuntimeError, match="xla device, got one on cpu"):
        step([torch.zeros(3)], [])
    with pytest.raises(RuntimeError, match="expected a momentum buffer for each parameter"):
        step([weight], [], momentum=0.9)
    with pytest.raises(RuntimeError, match="requires all the params to be floating point"):
        parameter = torch.zeros(3, device=device, dtype=torch.complex64, requires_grad=True)
        parameter.grad = torch.zeros_like(parameter)
        torch.optim.Adam([parameter], fused=True).step()


# --- With a model ---


@pytest.fixture
def case() -> Case:
    torch.manual_seed(0)
    return CASES["mlp"]()


@pytest.mark.parametrize(
    "make",
    [
        torch.optim.AdamW,
        lambda p: torch.optim.AdamW(p, fused=True),
        lambda p: torch.optim.SGD(p, momentum=0.9),
    ],
    ids=["AdamW", "fused AdamW", "SGD"],
)
def test_training(case, device, no_fallback, make):
    got = train(case, device, optimizer=make)
    assert compile_count() <= 2
    assert_same(got, train(case, "cpu", optimizer=make), rtol=1e-4, atol=1e-5)
    assert got.losses[-1] != got.losses[0]


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


@pytest.mark.parametrize("fused", [None, True], ids=["default", "fused"])
@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.SGD])
def test_schedules_of_rate_and_momentum_are_data(case, device, no_fallback, optimizer, fused):
    def make(parameters):
        options = {"momentum": 0.9} if optimizer is torch.optim.SGD else {}
        return optimizer(parameters, lr=1e-3, fused=fused, **options)

    def schedule(stepper):
        return OneCycleLR(stepper, max_lr=1e-2, total_steps=8)  # turns momentum and beta1 too

    got = train(case, device, optimizer=make, schedule=schedule, steps=8)
    # A fused SGD has a first step of its own.
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


@pytest.mark.parametrize("options", [{}, {"fused": True}, {"capturable": True}], ids=str)
def test_a_state_that_was_loaded_onto_the_device_goes_on_exactly(device, metrics, options):
    inputs = torch.randn(6, 8, 4)

    def make():
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 2).to(device)
        return model, torch.optim.AdamW(model.parameters(), lr=1e-2, **options)

    def losses(model, optimizer, steps):
        result = []
        for i in steps:
            optimizer.zero_grad()
            loss = model(inputs[i].to(device)).square().mean()
            loss.backward()
            optimizer.step()
            torch_xla.sync()
            result.append(loss.detach())
        return torch.stack([loss.cpu() for loss in result])

    model, optimizer = make()
    losses(model, optimizer, range(3))
    file = io.BytesIO()
    torch.save([model.state_dict(), optimizer.state_dict()], file)
    expected = losses(model, optimizer, range(3, 6))

    file.seek(0)
    states = torch.load(file, map_location=device)
    model, optimizer = make()
    model.load_state_dict(states[0])
    optimizer.load_state_dict(states[1])
    (count, *_) = (state["step"] for state in optimizer.state.values())
    assert count.device.type == ("xla" if options else "cpu")
    metrics.clear_all()
    assert torch.equal(losses(model, optimizer, range(3, 6)), expected)
    assert metrics.metric_data("TransferFromDeviceTime")[0] == 3  # the losses
