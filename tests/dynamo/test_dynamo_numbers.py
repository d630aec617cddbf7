"""torch.compile(backend="openxla"): random numbers, Python numbers and CPU tensors."""

from __future__ import annotations

import copy

import pytest
import torch
from compiling import MODELS, assert_same, batch, compilations, host, launches, train, views_of_new
from torch import nn

import torch_xla

# --- Random numbers ---


def test_random_numbers_are_those_of_tracing(device):
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 8), nn.Dropout(0.5))
    model.to(device)
    compiled = torch.compile(model, backend="openxla")
    x = batch(0, 6, 8).to(device)

    def run(f):
        torch.manual_seed(5)
        results = [f(x) for _ in range(3)]
        for result in results:
            result.sum().backward()
        return host([*results, torch.rand(3, device=device)])

    wanted = run(model)
    got = run(compiled)
    torch.testing.assert_close(got, wanted)
    assert not torch.equal(got[0], got[1])


def test_random_functions(device):
    def f(x):
        return (
            torch.rand_like(x),
            torch.randn(3, device=x.device) + 1,
            torch.bernoulli(x.sigmoid()),
            torch.randperm(5, device=x.device),
            torch.rand(2),  # on the host
        )

    compiled = torch.compile(f, backend="openxla")
    x = batch().to(device)

    def run(function):
        torch.manual_seed(11)
        return host([function(x) for _ in range(3)])

    wanted = run(f)
    assert not torch.equal(wanted[0][4], wanted[1][4])
    torch.testing.assert_close(run(compiled), wanted)
    torch.testing.assert_close(run(compiled), wanted)


def test_seeding_inside(device):
    def f(x):
        torch.manual_seed(3)
        return x + torch.rand_like(x)

    compiled = torch.compile(f, backend="openxla")
    x = batch().to(device)
    assert_same(compiled(x), host(f(x)))
    assert_same(compiled(x), host(f(x)))


# --- Numbers and CPU tensors ---


def test_numbers_among_the_arguments(device, metrics):
    def f(x, scale, count, flag):
        y = x * scale + count
        return (y if flag else -y), count + 1

    compiled = torch.compile(f, backend="openxla")
    for scale, count, flag in [(2.0, 3, True), (0.5, 4, True), (0.25, 5, False), (1.5, 6, True)]:
        x = batch()
        assert_same(compiled(x.to(device), scale, count, flag), f(x, scale, count, flag))


def test_number_tensors_on_the_host(device, metrics):
    """A learning rate on CPU is an input of the program, not a part of it."""
    torch_xla._XLAC._clear_cache()
    compiled = torch.compile(lambda x, rate: x * rate, backend="openxla")
    x = batch()
    for rate in (0.1, 0.2, 0.3):
        got = compiled(x.to(device), torch.tensor(rate))
        torch.testing.assert_close(got.cpu(), x * torch.tensor(rate))
    assert compilations() == 1
    assert launches() == 3


def test_host_sums_between_device_ops(device):
    def f(x, steps):
        steps += 1
        correction = 1 - 0.9**steps
        return x / correction, steps

    compiled = torch.compile(f, backend="openxla")
    on_host, beside_device = torch.tensor(0.0), torch.tensor(0.0)
    for seed in range(3):
        x = batch(seed)
        assert_same(compiled(x.to(device), beside_device), f(x, on_host))
        assert beside_device == on_host


def test_functions_of_cpu_tensors_run_there():
    compiled = torch.compile(views_of_new, backend="openxla")
    x = batch()
    got = compiled(x)
    assert got[0].device.type == "cpu"
    assert_same(got, views_of_new(x))
    model = MODELS["batch_norm"]()
    twin = copy.deepcopy(model)
    wanted = train(model, torch.optim.SGD(model.parameters(), lr=0.1), [batch(1, 6, 8)])
    got = train(
        twin,
        torch.optim.SGD(twin.parameters(), lr=0.1),
        [batch(1, 6, 8)],
        torch.compile(twin, backend="openxla"),
    )
    torch.testing.assert_close(host(got), host(wanted))


def test_cpu_input_of_a_device_model_raises(device):
    compiled = torch.compile(nn.Linear(4, 4).to(device), backend="openxla")
    with pytest.raises(Exception, match="device"):
        compiled(batch())


def test_transfers_inside(device):
    def f(x):
        return (x.to(device) * 2).cpu() + 1

    compiled = torch.compile(f, backend="openxla")
    for seed in range(3):
        x = batch(seed)
        assert_same(compiled(x), x * 2 + 1)
