"""Modules: moving them keeps their Parameter objects; hooks; buffers; tied weights."""

import pytest
import torch
import torch.nn.utils.parametrize as parametrize

import torch_xla


def tied():
    model = torch.nn.Sequential(torch.nn.Embedding(5, 3), torch.nn.Linear(3, 5, bias=False))
    model[1].weight = model[0].weight
    return model


@pytest.mark.parametrize(
    "back", [lambda m: m.cpu(), lambda m: m.to("cpu"), lambda m: m.to(torch.device("cpu"))]
)
def test_moving_keeps_parameter_objects(device, back):
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    before = list(model.parameters())
    values = [p.detach().clone() for p in before]
    model.to(device)
    assert all(a is b for a, b in zip(model.parameters(), before, strict=True))
    assert all(t.device == device for t in (*model.parameters(), *model.buffers()))
    back(model)
    assert all(a is b for a, b in zip(model.parameters(), before, strict=True))
    assert all(t.device.type == "cpu" for t in (*model.parameters(), *model.buffers()))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), values, strict=True))


def test_an_optimizer_made_before_moving_goes_on(device):
    def train(place):
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        model.to(place)
        for step in range(4):
            optimizer.zero_grad()
            model(torch.full((2, 3), float(step), device=place)).pow(2).sum().backward()
            optimizer.step()
        return model.cpu().weight.detach()

    torch.testing.assert_close(train(device), train("cpu"))


def test_gradients_move_along(device):
    model = torch.nn.Linear(2, 2)
    model(torch.ones(1, 2)).sum().backward()
    model.to(device)
    assert model.weight.grad.device == device
    model(torch.ones(1, 2, device=device)).sum().backward()
    assert model.weight.grad.tolist() == [[2, 2], [2, 2]]
    model.cpu()
    assert model.weight.grad.tolist() == [[2, 2], [2, 2]]


def test_tied_weights_stay_tied(device):
    model = tied()
    weight = model[0].weight
    model.to(device)
    assert model[0].weight is weight
    assert model[1].weight is weight
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    model(torch.tensor([1, 2], device=device)).sum().backward()
    optimizer.step()
    assert torch.equal(model[0].weight.cpu(), model[1].weight.cpu())
    model.cpu()
    assert model[0].weight is model[1].weight is weight


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_moving_and_converting_at_once(device, dtype):
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)).to(device, dtype)
    assert model[0].weight.dtype == model[1].running_mean.dtype == dtype
    assert model[1].num_batches_tracked.dtype == torch.int64
    assert model[0].weight.device == model[1].num_batches_tracked.device == device
    model.float().half().double().cpu()
    assert model[0].weight.dtype == torch.float64


def test_modules_made_on_the_device_and_on_meta(device):
    with device:
        model = torch.nn.Linear(2, 3)
    assert model.weight.device == device
    with torch.device("meta"):
        empty = torch.nn.Linear(2, 3)
    empty.to_empty(device=device).load_state_dict(model.state_dict())
    assert torch.equal(empty.weight.cpu(), model.weight.cpu())
    torch.nn.Linear(2, 3, device=device).reset_parameters()


def test_memory_format_of_a_module(device):
    model = torch.nn.Conv2d(3, 4, 3).to(device, memory_format=torch.channels_last)
    assert model.weight.is_contiguous(memory_format=torch.channels_last)
    assert model.weight.cpu().is_contiguous(memory_format=torch.channels_last)


def test_load_state_dict_writes_into_the_parameters(device):
    model = torch.nn.Linear(2, 2).to(device)
    weight = model.weight
    state = {name: torch.full_like(t, 3.0, device="cpu") for name, t in model.state_dict().items()}
    model.load_state_dict(state)
    assert model.weight is weight
    assert weight.tolist() == [[3, 3], [3, 3]]
    model.load_state_dict({k: v.to(device) for k, v in state.items()}, assign=True)
    assert model.weight.device == device


def test_state_dicts_alias_the_parameters(device):
    model = torch.nn.Linear(2, 2).to(device)
    state = model.state_dict()
    with torch.no_grad():
        model.weight.fill_(7)
    torch_xla.sync()
    assert state["weight"].tolist() == [[7, 7], [7, 7]]


def test_buffers_are_updated_in_place(device):
    def run(place):
        model = torch.nn.BatchNorm1d(3).to(place)
        mean = model.running_mean
        for i in range(3):
            model(torch.arange(6.0, device=place).view(2, 3) * i)
            if place != "cpu":
                torch_xla.sync()
        assert model.running_mean is mean
        return mean.cpu(), model.running_var.cpu(), model.num_batches_tracked.item()

    for got, want in zip(run(device), run("cpu"), strict=True):
        torch.testing.assert_close(got, want)


# --- Hooks ---


def test_module_hooks(device):
    seen = []
    model = torch.nn.Linear(2, 2).to(device)
    model.register_forward_pre_hook(lambda m, args: (args[0] * 2,))
    model.register_forward_hook(lambda m, args, out: seen.append(out.shape) or out + 1)
    model.register_full_backward_hook(lambda m, gi, go: seen.append(go[0].device))
    x = torch.ones(1, 2, device=device, requires_grad=True)
    out = model(x)
    torch.testing.assert_close(
        out.cpu(), model.weight.cpu().sum(1)[None] * 2 + model.bias.cpu() + 1
    )
    out.sum().backward()
    assert seen == [torch.Size([1, 2]), device]


def test_tensor_hooks(device):
    x = torch.ones(3, device=device, requires_grad=True)
    order = []
    y = x * 2
    handle = y.register_hook(lambda grad: order.append("hook") or grad * 10)
    x.register_post_accumulate_grad_hook(lambda p: order.append(p.grad.tolist()))
    y.retain_grad()
    y.sum().backward(retain_graph=True)
    assert y.grad.tolist() == [10, 10, 10]
    assert order == ["hook", [20, 20, 20]]
    handle.remove()
    x.grad = None
    y.sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


def test_an_optimizer_in_the_backward_hook(device):
    model = torch.nn.Linear(2, 2).to(device)
    before = model.weight.detach().cpu().clone()

    def step(parameter):
        with torch.no_grad():
            parameter -= 0.1 * parameter.grad
        parameter.grad = None

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    model(torch.ones(1, 2, device=device)).sum().backward()
    torch_xla.sync()
    torch.testing.assert_close(model.weight.cpu(), before - 0.1)


def test_parametrizations(device):
    class Double(torch.nn.Module):
        def forward(self, x):
            return x * 2

    model = torch.nn.Linear(2, 2, bias=False).to(device)
    plain = model.weight.detach().cpu()
    parametrize.register_parametrization(model, "weight", Double())
    torch.testing.assert_close(model.weight.cpu(), plain * 2)
    model(torch.ones(1, 2, device=device)).sum().backward()
    assert model.parametrizations.weight.original.grad.tolist() == [[2, 2], [2, 2]]


def test_functional_call(device):
    model = torch.nn.Linear(2, 1, bias=False).to(device)
    out = torch.func.functional_call(
        model, {"weight": torch.ones(1, 2, device=device)}, torch.ones(1, 2, device=device)
    )
    assert out.tolist() == [[2]]
