"""torch.compile(backend="openxla") of modules: training, optimizers, checkpoints."""

from __future__ import annotations

import copy

import pytest
import torch
from compiling import MODELS, assert_same, batch, host, launches, layout, train
from torch import nn


@pytest.mark.parametrize("name", MODELS)
def test_training(device, name):
    model = MODELS[name]()
    twin = copy.deepcopy(model).to(device)
    inputs = [batch(seed, 6, 8) for seed in range(4)]
    wanted = train(model, torch.optim.SGD(model.parameters(), lr=0.1), inputs)
    compiled = torch.compile(twin, backend="openxla")
    got = train(
        twin,
        torch.optim.SGD(twin.parameters(), lr=0.1),
        [x.to(device) for x in inputs],
        compiled,
    )
    torch.testing.assert_close(host(got), host(wanted), rtol=1e-4, atol=1e-5)
    assert layout(got) == layout(wanted)
    # In evaluation, without gradients, with its buffers as they are.
    model.eval()
    compiled.eval()
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            for x in inputs[:2]:
                result = compiled(x.to(device))
                torch.testing.assert_close(result.cpu(), model(x), rtol=1e-4, atol=1e-5)
                assert result.is_inference() == torch.is_inference_mode_enabled()


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.SGD(p, lr=0.1),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        lambda p: torch.optim.Adam(p, lr=0.01),
        lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True),
        lambda p: torch.optim.AdamW(p, lr=0.01, capturable=True),
        lambda p: torch.optim.RMSprop(p, lr=0.01),
        lambda p: torch.optim.Adagrad(p, lr=0.01),
    ],
    ids=["sgd", "momentum", "adam", "adamw-foreach", "adamw-capturable", "rmsprop", "adagrad"],
)
def test_optimizer_step(device, make, monkeypatch):
    def run(place, compiled):
        torch.manual_seed(3)
        model = MODELS["mlp"]().to(place)
        # A CPU optimizer has no capturable form.
        optimizer = make(model.parameters())
        if place == "cpu":
            for group in optimizer.param_groups:
                group["capturable"] = False
        step = torch.compile(optimizer.step, backend="openxla") if compiled else optimizer.step
        for seed in range(5):
            optimizer.zero_grad()
            model(batch(seed, 6, 8).to(place)).square().mean().backward()
            step()
        return [p.detach().cpu() for p in model.parameters()]

    wanted = run("cpu", False)
    torch.testing.assert_close(run(device, True), wanted, rtol=1e-4, atol=1e-6)


def test_whole_step_with_autocast_and_clipping(device):
    def run(place, backend):
        torch.manual_seed(3)
        model = MODELS["mlp"]().to(place)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def forward(x):
            with torch.autocast(place.type, dtype=torch.bfloat16):
                return model(x).float().square().mean()

        compiled = torch.compile(forward, backend=backend) if backend else forward
        for seed in range(3):
            optimizer.zero_grad()
            compiled(batch(seed, 6, 8).to(place)).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
        return [p.detach().cpu() for p in model.parameters()]

    wanted = run(torch.device("cpu"), None)
    torch.testing.assert_close(run(device, "openxla"), wanted, rtol=1e-2, atol=1e-2)


def test_checkpoint(device):
    from torch.utils.checkpoint import checkpoint

    def run(place, compile):
        torch.manual_seed(1)
        model = MODELS["blocks"]().to(place)

        def forward(x):
            return checkpoint(model, x, use_reentrant=False).sum()

        forward = torch.compile(forward, backend="openxla") if compile else forward
        for seed in range(2):
            forward(batch(seed, 6, 8).to(place)).backward()
        return [p.grad.cpu() for p in model.parameters()]

    torch.testing.assert_close(
        run(device, True), run(torch.device("cpu"), False), rtol=1e-4, atol=1e-5
    )


def test_checkpoint_draws_the_same_numbers_twice(device, metrics):
    from torch.utils.checkpoint import checkpoint

    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 8), nn.Dropout(0.3))
    model.to(device)

    def forward(x):
        return checkpoint(model, x, use_reentrant=False).square().sum()

    compiled = torch.compile(forward, backend="openxla")
    x = batch(0, 4, 8).to(device).requires_grad_()

    def gradient(f, seed):
        torch.manual_seed(seed)
        (result,) = torch.autograd.grad(f(x), x)
        return host([result, torch.rand(2, device=device)])

    gradient(compiled, 0)
    before = launches()
    for seed in range(3):
        wanted = gradient(forward, seed)
        torch.testing.assert_close(gradient(compiled, seed), wanted)
    assert launches() == before + 6  # one forward and one backward each: nothing is read back


def test_backward_twice(device):
    def gradient(f, x):
        loss = f(x)
        loss.backward(retain_graph=True)
        loss.backward()
        return x.grad

    def f(x):
        return (x.sin() * x).sum()

    compiled = torch.compile(f, backend="openxla")
    got = gradient(compiled, batch().to(device).requires_grad_())
    assert_same(got, gradient(f, batch().requires_grad_()))


@pytest.mark.parametrize("dynamic", [None, True])
def test_training_with_several_batch_sizes(device, dynamic):
    model = MODELS["blocks"]()
    twin = copy.deepcopy(model).to(device)
    compiled = torch.compile(twin, backend="openxla", dynamic=dynamic)
    for rows in (3, 5, 7, 3):
        for m, place in ((model, "cpu"), (twin, device)):
            f = model if m is model else compiled
            m.zero_grad()
            f(batch(rows, rows, 8).to(place)).square().sum().backward()
        for got, wanted in zip(twin.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(got.grad.cpu(), wanted.grad, rtol=1e-4, atol=1e-4)


def test_double_backward_through_a_break(device):
    def f(x):
        y = x.sin()
        torch._dynamo.graph_break()
        return (y * x).sum()

    def gradients(function, x):
        (first,) = torch.autograd.grad(function(x), x)
        return first

    x = batch().requires_grad_()
    y = batch().to(device).requires_grad_()
    compiled = torch.compile(f, backend="openxla")
    assert_same(gradients(compiled, y), gradients(f, x))
