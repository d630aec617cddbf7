"""torch.autocast("xla"), torch_xla.amp: which op runs in which type, and loss scaling."""

import pytest
import torch
import torch.nn.functional as F

import torch_xla
import torch_xla.amp
from torch_xla.amp import syncfree

TYPES = [torch.bfloat16, torch.float16]


@pytest.fixture(params=["torch", "torch_xla"])
def autocast(request):
    if request.param == "torch":
        return lambda **kw: torch.autocast("xla", **kw)
    return lambda **kw: torch_xla.amp.autocast("xla:0", **kw)


@pytest.fixture
def x(device):
    return torch.randn(4, 4, device=device)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize(
    "op",
    [
        lambda x: x @ x,
        lambda x: F.linear(x, x, x[0]),
        lambda x: torch.addmm(x, x, x),
        lambda x: F.conv1d(x[None], x[:, :, None]),
        lambda x: torch.einsum("ij,jk", x, x),
    ],
)
def test_products_are_narrow(autocast, x, dtype, op):
    with autocast(dtype=dtype):
        y = op(x)
    assert y.dtype == dtype
    torch.testing.assert_close(y.float().cpu(), op(x.cpu()), rtol=0.05, atol=0.1)


@pytest.mark.parametrize(
    "op",
    [
        torch.exp,
        lambda x: torch.softmax(x, -1),
        lambda x: F.layer_norm(x, (4,)),
        lambda x: F.mse_loss(x, x * 2),
        lambda x: x.sum(),
        lambda x: x.pow(2),
        lambda x: x.norm(),
        lambda x: torch.cumsum(x, 0),
        lambda x: F.binary_cross_entropy(torch.sigmoid(x), torch.sigmoid(x)),
        lambda x: F.cross_entropy(x, x.argmax(1)),
    ],
)
def test_sums_and_functions_are_wide(autocast, x, op):
    with autocast():
        y = op(x.bfloat16())
    assert y.dtype == torch.float32


def test_other_ops_keep_their_type(autocast, x):
    with autocast():
        assert (x + x).dtype == torch.float32
        assert F.relu(x.bfloat16()).dtype == torch.bfloat16
        assert torch.addcmul(x, x.bfloat16(), x).dtype == torch.float32
        assert torch.mm(x.double(), x.double()).dtype == torch.float64
        assert torch.mm(x.long().float(), x).dtype == torch.bfloat16


def test_nesting_and_switching_off(autocast, x):
    with autocast():
        with autocast(enabled=False):
            assert (x @ x).dtype == torch.float32
            assert not torch.is_autocast_enabled("xla")
        assert (x @ x).dtype == torch.bfloat16
    assert (x @ x).dtype == torch.float32


def test_as_a_decorator(x):
    @torch_xla.amp.autocast("xla")
    def f(x):
        return x @ x

    assert f(x).dtype == torch.bfloat16


def test_only_for_xla_devices():
    with pytest.raises(ValueError, match="expected an xla device"):
        torch_xla.amp.autocast("cuda")


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_training_under_autocast(device, dtype):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x = torch.randn(32, 8, device=device)
    target = x.sum(1, keepdim=True)
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        with torch.autocast("xla", dtype=dtype):
            loss = F.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        torch_xla.sync()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2
    assert model[0].weight.dtype == model[0].weight.grad.dtype == torch.float32


OPTIMIZERS = {
    "SGD": (syncfree.SGD, {"lr": 0.1, "momentum": 0.9}),
    "Adam": (syncfree.Adam, {"lr": 0.1}),
    "AdamW": (syncfree.AdamW, {"lr": 0.1}),
}


def parameters(device):
    p = torch.nn.Parameter(torch.tensor([1.0, -2.0, 3.0], device=device))
    p.grad = torch.tensor([0.5, 0.25, -1.0], device=device)
    return p


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_syncfree_steps_are_those_of_torch(device, name):
    cls, arguments = OPTIMIZERS[name]
    ours, stock = parameters(device), parameters("cpu")
    optimizer = cls([ours], **arguments)
    reference = getattr(torch.optim, name)([stock], **arguments)
    for found_inf in (None, torch.zeros(1, device=device), None):
        optimizer.step(found_inf=found_inf)
        reference.step()
    torch.testing.assert_close(ours.detach().cpu(), stock.detach())


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_that_is_thrown_away_changes_nothing(device, name):
    cls, arguments = OPTIMIZERS[name]
    p, stock = parameters(device), parameters("cpu")
    optimizer = cls([p], **arguments)
    reference = getattr(torch.optim, name)([stock], **arguments)
    bad, good = torch.ones(1, device=device), torch.zeros(1, device=device)
    fine = p.grad.clone()
    for found_inf in (good, bad, good):
        p.grad.copy_(torch.full_like(fine, float("nan")) if found_inf is bad else fine)
        optimizer.step(found_inf=found_inf)
        if found_inf is good:
            reference.step()
    torch.testing.assert_close(p.detach().cpu(), stock.detach())


def scaled_step(scaler, optimizer, p, grad):
    optimizer.zero_grad()
    scaler.scale((p * grad).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    torch_xla.sync()


@pytest.mark.parametrize("cls", [torch.optim.SGD, syncfree.SGD])
def test_grad_scaler(device, cls, metrics):
    p = torch.nn.Parameter(torch.ones(2, device=device))
    optimizer = cls([p], lr=0.5)
    scaler = torch_xla.amp.GradScaler(init_scale=8.0, growth_interval=2)
    assert scaler.is_enabled()
    good = torch.tensor([1.0, 2.0], device=device)
    bad = torch.tensor([float("inf"), 2.0], device=device)
    torch_xla.sync()
    metrics.clear_all()
    scaled_step(scaler, optimizer, p, good)
    assert metrics.counter_value("MarkStep") == 1
    assert metrics.metric_data("TransferFromDeviceTime") is None, "nothing may be read back"
    assert p.tolist() == [0.5, 0.0]
    scaled_step(scaler, optimizer, p, bad)
    assert p.tolist() == [0.5, 0.0]
    assert scaler.get_scale() == 4.0
    scaled_step(scaler, optimizer, p, good)
    scaled_step(scaler, optimizer, p, good)
    assert scaler.get_scale() == 8.0
    assert p.tolist() == [-0.5, -2.0]
    restored = torch_xla.amp.GradScaler()
    restored.load_state_dict(scaler.state_dict())
    assert restored.get_scale() == 8.0


def test_grad_scaler_switched_off(device):
    p = torch.nn.Parameter(torch.ones(1, device=device))
    optimizer = torch.optim.SGD([p], lr=1.0)
    scaler = torch_xla.amp.GradScaler(enabled=False)
    scaled_step(scaler, optimizer, p, torch.ones(1, device=device))
    assert p.tolist() == [0.0]
