"""What training loops do besides a plain step: dropout, accumulation, clipping, scaling, memory."""

from __future__ import annotations

import copy

import psutil
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
from training import adamw, compile_count, train
from zoo import CASES, Case

import torch_xla


@pytest.fixture
def case() -> Case:
    torch.manual_seed(0)
    return CASES["mlp"]()


def on(case: Case, device: torch.device | str) -> Case:
    """A copy of a case on a device."""
    batch = {name: tensor.to(device) for name, tensor in case.batch.items()}
    return Case(copy.deepcopy(case.model).to(device), batch, case.loss)


def assert_same_parameters(got: nn.Module, expected: nn.Module) -> None:
    for (name, ours), theirs in zip(got.named_parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(
            ours.detach().cpu(), theirs.detach(), rtol=1e-4, atol=1e-6, msg=lambda t, n=name: n + t
        )


# --- Dropout --------------------------------------------------------------------------------------


def test_dropout_differs_from_step_to_step(device, no_fallback):
    model = nn.Sequential(nn.Linear(8, 64), nn.Dropout(0.5)).to(device)
    x = torch.randn(4, 8).to(device)
    zeros = []
    for _ in range(4):
        y = model(x)
        y.sum().backward()
        torch_xla.sync()
        zeros.append((y == 0).cpu())
    assert compile_count() <= 3
    for i in range(4):
        assert 0.3 < zeros[i].float().mean() < 0.7
        for j in range(i):
            assert not torch.equal(zeros[i], zeros[j])
    model.eval()
    assert not (model(x) == 0).any()


def test_dropout_repeats_from_the_same_seed(device):
    def run():
        torch.manual_seed(3)
        return [F.dropout(torch.ones(100, device=device), 0.3).cpu() for _ in range(2)]

    first, second = run(), run()
    assert torch.equal(first[0], second[0]) and torch.equal(first[1], second[1])
    assert not torch.equal(first[0], first[1])
    kept = first[0][first[0] != 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / 0.7))


@pytest.mark.parametrize("name", ["gpt2"])
def test_transformers_train_with_their_usual_dropout(device, no_fallback, name):
    torch.manual_seed(0)
    case = CASES[name]()
    for module in case.model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.1
    here = on(case, device)
    here.model.train()
    optimizer = torch.optim.AdamW(here.model.parameters(), lr=1e-2)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = here.loss(here.model, here.batch)
        loss.backward()
        optimizer.step()
        torch_xla.sync()
        losses.append(loss.item())
    assert compile_count() <= 2
    assert losses[-1] < 0.7 * losses[0]


def test_rnn_dropout_between_layers(device, no_fallback):
    model = nn.LSTM(4, 8, num_layers=2, dropout=0.5).to(device)
    x = torch.randn(3, 2, 4).to(device)
    first, second = model(x)[0].detach().cpu(), model(x)[0].detach().cpu()
    assert not torch.equal(first, second)


# --- Accumulation, clipping, freezing -------------------------------------------------------------


def test_gradient_accumulation(case, device, no_fallback):
    def run(where):
        here = on(case, where)
        optimizer = adamw(here.model.parameters())
        for _ in range(3):
            optimizer.zero_grad()
            for x, y in zip(here.batch["x"].chunk(4), here.batch["y"].chunk(4), strict=True):
                (here.loss(here.model, {"x": x, "y": y}) / 4).backward()
            optimizer.step()
            if where != "cpu":
                torch_xla.sync()
        return here.model

    ours = run(device)
    assert compile_count() <= 2
    assert_same_parameters(ours, run("cpu"))


def test_accumulation_with_a_sync_for_each_part(case, device, no_fallback):
    def run(where):
        here = on(case, where)
        optimizer = adamw(here.model.parameters())
        for step in range(12):
            (here.loss(here.model, here.batch) / 4).backward()
            if step % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()
            if where != "cpu":
                torch_xla.sync()
        return here.model

    ours = run(device)
    # The first part, the parts that add to it, the last one with and without optimizer state.
    assert compile_count() <= 4
    assert_same_parameters(ours, run("cpu"))


@pytest.mark.parametrize("norm", [0.01, 1e6], ids=["clipped", "not clipped"])
def test_clipping_the_norm(case, device, no_fallback, norm):
    def run(where):
        here = on(case, where)
        optimizer = torch.optim.SGD(here.model.parameters(), lr=0.1)
        norms = []
        for _ in range(3):
            optimizer.zero_grad()
            here.loss(here.model, here.batch).backward()
            norms.append(nn.utils.clip_grad_norm_(here.model.parameters(), norm))
            optimizer.step()
            if where != "cpu":
                torch_xla.sync()
        return here.model, torch.stack(norms).cpu()

    ours, norms = run(device)
    assert compile_count() <= 2
    theirs, expected = run("cpu")
    torch.testing.assert_close(norms, expected, rtol=1e-4, atol=0)
    assert_same_parameters(ours, theirs)


def test_clipping_values_and_frozen_layers(case, device, no_fallback):
    def run(where):
        here = on(case, where)
        for parameter in here.model[0].parameters():
            parameter.requires_grad_(False)
        optimizer = torch.optim.SGD(here.model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            here.loss(here.model, here.batch).backward()
            nn.utils.clip_grad_value_(here.model.parameters(), 0.01)
            optimizer.step()
        return here.model

    ours = run(device)
    assert_same_parameters(ours, run("cpu"))
    assert_same_parameters(ours[0], case.model[0])


def test_an_average_of_the_weights(case, device, no_fallback):
    def run(where):
        here = on(case, where)
        average = torch.optim.swa_utils.AveragedModel(
            here.model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
        )
        optimizer = torch.optim.SGD(here.model.parameters(), lr=0.1)
        for _ in range(4):
            optimizer.zero_grad()
            here.loss(here.model, here.batch).backward()
            optimizer.step()
            average.update_parameters(here.model)
        return average.module

    assert_same_parameters(run(device), run("cpu"))


# --- Narrow types ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, dtype",
    [
        ("mlp", torch.bfloat16),
        ("mlp", torch.float16),
        ("resnet18", torch.bfloat16),
        ("gpt2", torch.bfloat16),
    ],
    ids=str,
)
def test_autocast(device, no_fallback, name, dtype):
    torch.manual_seed(0)
    case = CASES[name]()

    def run(where):
        here = on(case, where)
        optimizer = adamw(here.model.parameters())
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            with torch.autocast(torch.device(where).type, dtype):
                loss = here.loss(here.model, here.batch)
            loss.backward()
            optimizer.step()
            if where != "cpu":
                torch_xla.sync()
            losses.append(loss.detach())
        assert all(parameter.dtype == torch.float32 for parameter in here.model.parameters())
        return torch.stack(losses).float().cpu()

    ours = run(device)
    assert compile_count() <= 2
    expected = run("cpu")
    torch.testing.assert_close(ours[0], expected[0], rtol=1e-2, atol=0)
    if name == "resnet18":
        # After three steps CPU is 1.1 % below the exact loss, and we 1.0 % above.
        expected = torch.tensor(train(case, "cpu", steps=3, dtype=torch.float64).losses)
    torch.testing.assert_close(ours, expected, rtol=2e-2, atol=0)


def test_a_gradient_scaler_skips_the_steps_that_overflow(case, device, no_fallback):
    here = on(case, device)
    optimizer = torch.optim.SGD(here.model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("xla", init_scale=2.0**40, growth_interval=2)
    before = copy.deepcopy(here.model)
    scales = []
    for step in range(30):
        optimizer.zero_grad()
        with torch.autocast("xla", torch.float16):
            loss = here.loss(here.model, here.batch)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        torch_xla.sync()
        scales.append(scaler.get_scale())
        if step == 0:
            assert_same_parameters(here.model, before.cpu())
    assert scales[0] == 2.0**39
    assert min(scales) < 2.0**30
    assert torch.isfinite(torch.cat([p.flatten() for p in here.model.parameters()])).all()
    assert here.loss(here.model, here.batch) < case.loss(case.model, case.batch)


# --- Checkpointing --------------------------------------------------------------------------------


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing(device, no_fallback, reentrant):
    torch.manual_seed(0)
    case = CASES["transformer_encoder"]()

    def run(where, checkpointed):
        here = on(case, where)
        layers = here.model.body.layers
        x = here.model.embedding(here.batch["x"])
        for layer in layers:
            x = checkpoint(layer, x, use_reentrant=reentrant) if checkpointed else layer(x)
        F.cross_entropy(here.model.head(x.mean(1)), here.batch["y"]).backward()
        return [p.grad.cpu() for p in here.model.parameters()]

    expected = run("cpu", False)
    torch.testing.assert_close(run(device, True), expected, rtol=1e-4, atol=1e-6)


def test_checkpointing_repeats_dropout(device, no_fallback):
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(16, 64), nn.Dropout(0.5), nn.Linear(64, 1)).to(device)
    x = torch.randn(8, 16).to(device)

    def gradients(through):
        torch.manual_seed(5)
        body.zero_grad()
        through(x).sum().backward()
        return [p.grad.cpu() for p in body.parameters()]

    plain = gradients(body)
    again = gradients(lambda x: checkpoint(body, x, use_reentrant=False))
    torch.testing.assert_close(again, plain, rtol=1e-5, atol=1e-6)
    parts = gradients(lambda x: checkpoint_sequential(body, 2, x, use_reentrant=False))
    assert all(torch.isfinite(part).all() for part in parts)


# --- Helpers of other packages --------------------------------------------------------------------


def test_the_stock_data_loader_feeds_a_device(case, device, no_fallback):
    data = torch.utils.data.TensorDataset(case.batch["x"], case.batch["y"])
    loader = torch.utils.data.DataLoader(data, 8, num_workers=0)
    here = on(case, device)
    optimizer = adamw(here.model.parameters())
    for _ in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            here.loss(here.model, {"x": x.to(device), "y": y.to(device)}).backward()
            optimizer.step()
            torch_xla.sync()
    assert compile_count() <= 2


def test_generation_of_a_language_model(device, no_fallback):
    torch.manual_seed(0)
    case = CASES["gpt2"]()
    prompt = torch.randint(60, (1, 3))
    options = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 0}
    expected = case.model.eval().generate(prompt, **options)
    got = case.model.to(device).generate(prompt.to(device), **options)
    assert got.cpu().tolist() == expected.tolist()


# --- Memory ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_memory_stays_flat(device, metrics):
    """500 steps of training with a new batch, loss reads, a scheduler and dropout."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 10))
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000)

    def steps(count):
        for i in range(count):
            x, y = torch.randn(32, 64).to(device), torch.randint(10, (32,)).to(device)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            schedule.step()
            torch_xla.sync()
            if i % 10 == 0:
                loss.item()

    steps(100)
    compiled = compile_count()
    before = psutil.Process().memory_info().rss
    steps(500)
    grown = psutil.Process().memory_info().rss - before
    assert compile_count() == compiled
    assert grown < 8 * 2**20, f"resident memory grew by {grown / 2**20:.1f} MiB in 500 steps"


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_updates_need_no_copies_of_the_weights(device, optimizer):
    """A weight is updated in its own memory, though the gradient of the layer's input reads it."""
    depth = 8
    layers = (m for _ in range(depth) for m in (nn.Linear(256, 256), nn.Tanh()))
    model = nn.Sequential(*layers).to(device)
    x = torch.randn(4, 256, device=device)
    torch_xla.sync()
    programs = []
    torch_xla._XLAC._set_compile_listener(programs.append)
    try:
        steps = optimizer(model.parameters(), lr=1e-3)
        model(x).square().sum().backward()
        steps.step()
        torch_xla.sync()
    finally:
        torch_xla._XLAC._set_compile_listener(None)
    (program,) = programs
    one_layer = sum(parameter.nbytes for parameter in model[0].parameters())
    assert program["memory"]["temporaries"] < 2 * one_layer
