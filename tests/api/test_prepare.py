"""step.prepare(): the program of a step is there before the step is called, and nothing else is."""

from __future__ import annotations

import collections
import random
import threading
import time

import pytest
import torch
from torch import nn
from trainer import trainer

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
import torch_xla.distributed.parallel_loader as pl
from torch_xla._extension import _XLAC
from torch_xla._internal.snapshot import Snapshot


@pytest.fixture(autouse=True)
def _no_programs(device) -> None:
    """What other tests compiled is compiled again, and they compile nothing more."""
    _XLAC._finish_compiling_behind()
    _XLAC._clear_cache()


def compiles() -> int:
    data = met.metric_data("CompileTime")
    return data[0] if data else 0


def prepared() -> int:
    return met.counter_value("CompileBehind") or 0


def settle() -> None:
    """Waits for what is being compiled."""
    while _XLAC._num_compiling_behind():
        time.sleep(0.01)


def meta(*tensors: torch.Tensor) -> list[torch.Tensor]:
    return [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta") for t in tensors]


def batch(size: int, device=None) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(size)
    x = torch.randn(size, 8, generator=generator)
    y = torch.randint(4, (size,), generator=generator)
    return (x, y) if device is None else (x.to(device), y.to(device))


def state_of(model, stepper) -> dict[str, torch.Tensor]:
    state = {name: value.cpu().clone() for name, value in model.state_dict().items()}
    for name, parameter in model.named_parameters():
        state[f"{name}.grad"] = torch.tensor(0) if parameter.grad is None else parameter.grad.cpu()
        for key, value in stepper.state.get(parameter, {}).items():
            state[f"{name}.{key}"] = torch.as_tensor(value).cpu().clone()
    return state


def assert_same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys()
    for name, value in a.items():
        assert torch.equal(value, b[name]), name


OPTIMIZERS = [
    (torch.optim.AdamW, {}),
    (torch.optim.AdamW, {"fused": True}),
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    (torch.optim.Adagrad, {"foreach": False}),
]


@pytest.mark.parametrize("optimizer, options", OPTIMIZERS, ids=lambda x: str(x)[-30:])
@pytest.mark.parametrize("after", [0, 2], ids=lambda n: f"after {n} steps")
def test_a_prepared_step_compiles_nothing(device, metrics, optimizer, options, after):
    """Before the first step too, which creates the optimizer's state."""
    _, _, step = trainer(device, clip=True, optimizer=optimizer, **options)
    for _ in range(after):
        step(*batch(16, device))
    x, y = batch(6, device)
    torch_xla.sync()
    before = compiles()
    assert step.prepare(*meta(x, y))
    settle()
    assert prepared() == 1
    assert compiles() == before + 1
    step(x, y)
    assert compiles() == before + 1


@pytest.mark.parametrize("optimizer, options", OPTIMIZERS, ids=lambda x: str(x)[-30:])
def test_nothing_has_changed(device, optimizer, options):
    """Weights, gradients, statistics, the optimizer's state and random state are what they were."""

    def run(prepare):
        model, stepper, step = trainer(device, clip=True, optimizer=optimizer, **options)
        losses = []
        for i, size in enumerate([16, 16, 6]):
            if prepare:
                before = state_of(model, stepper)
                assert step.prepare(*meta(*batch(3 + i)))
                assert_same(before, state_of(model, stepper))
            losses.append(step(*batch(size, device)).item())
        return losses, state_of(model, stepper)

    plain_losses, plain = run(False)
    losses, state = run(True)
    assert losses == plain_losses
    assert_same(state, plain)


def test_a_prepared_step_replays(device, metrics):
    _, _, step = trainer(device, clip=True, replay=True, fused=True)
    assert step.prepare(*meta(*batch(16)))
    for _ in range(5):
        step(*batch(16, device))
    assert step.traced_because == ""
    before = compiles()
    assert step.prepare(*meta(*batch(6)))
    settle()
    for _ in range(5):
        step(*batch(6, device))
    assert step.traced_because == ""
    assert compiles() == before + 1


def test_a_call_may_come_before_the_program_is_there(device, metrics):
    """It waits for the rest of the compilation, or compiles itself; once in all."""
    _, _, step = trainer(device, clip=True)
    for size in range(2, 8):
        assert step.prepare(*meta(*batch(size)))
    losses = [step(*batch(size, device)) for size in range(7, 1, -1)]
    settle()
    assert compiles() == 6
    assert all(loss.isfinite() for loss in losses)


def test_arguments_on_the_device_stand_for_themselves(device, metrics):
    @torch_xla.compile
    def step(x, factor):
        x.mul_(factor)
        return x.sum()

    x = torch.ones(3, device=device)
    assert step.prepare(x, 3.0)
    assert x.tolist() == [1, 1, 1]
    settle()
    before = compiles()
    assert step(x, 4.0).item() == 12
    assert x.tolist() == [4, 4, 4]
    assert compiles() == before


def test_layouts_and_keywords(device, metrics):
    conv = nn.Conv2d(3, 4, 3).to(device, memory_format=torch.channels_last)

    @torch_xla.compile
    def step(*, images):
        return conv(images["x"]).sum()

    x = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    assert step.prepare(images={"x": meta(x)[0]})
    settle()
    before = compiles()
    step(images={"x": x.to(device)})
    assert compiles() == before


def test_state_that_is_replaced_and_not_written(device, metrics):
    """What a call would drop may be donated in the prepared program as in the call's own."""
    state = {"w": torch.ones(4, 4, device=device)}

    @torch_xla.compile
    def step(x):
        state["w"] = state["w"] * 0.5 + x
        return state["w"].sum()

    x = torch.ones(4, 4, device=device)
    step(x)
    held = state["w"]
    assert step.prepare(*meta(x))
    assert state["w"] is held
    settle()
    del held
    before = compiles()
    step(x)
    step(x)
    assert compiles() == before
    assert torch.equal(state["w"].cpu(), torch.full((4, 4), 1.875))


def test_a_method(device, metrics):
    class Trainer:
        def __init__(self):
            self.linear = nn.Linear(3, 2).to(device)
            self.calls = 0
            self.losses = []

        @torch_xla.compile
        def step(self, x):
            self.calls += 1
            loss = self.linear(x).sum()
            self.losses.append(loss)
            return loss

    trainer = Trainer()
    assert trainer.step.prepare(torch.empty(5, 3, device="meta"))
    assert (trainer.calls, trainer.losses) == (0, [])
    trainer.step(torch.ones(5, 3, device=device))
    assert trainer.calls == 1


total = 0


def test_python_state_is_put_back(device):
    count = 0
    seen = collections.Counter()
    generator = torch.Generator().manual_seed(1)

    @torch_xla.compile
    def step(x):
        nonlocal count
        global total, made_by_step
        count += 1
        total += 1
        made_by_step = True
        step.calls = getattr(step, "calls", 0) + 1
        seen["x"] += 1
        noise = torch.rand(3, generator=generator) + torch.rand(3) + random.random()
        return x + noise.to(x.device) + torch.rand(3, device=x.device)

    torch.manual_seed(2)
    random.seed(3)
    x = torch.zeros(3, device=device)
    wanted = step(x).cpu()
    torch.manual_seed(2)
    random.seed(3)
    generator.manual_seed(1)
    assert step.prepare(x)
    assert (count, total, seen["x"]) == (1, 1, 1)
    assert torch.equal(step(x).cpu(), wanted)


def test_versions_are_what_they_were(device):
    """A graph that autograd made before can still be run back."""
    weight = torch.ones(3, device=device, requires_grad=True)

    @torch_xla.compile
    def step(x):
        with torch.no_grad():
            weight.mul_(x)

    loss = (weight * weight).sum()
    assert step.prepare(torch.empty(3, device="meta"))
    loss.backward()
    assert weight.grad.tolist() == [2, 2, 2]


def test_other_memory_is_taken_back(device):
    weight = nn.Parameter(torch.ones(3, device=device))

    @torch_xla.compile
    def step(x):
        weight.data = weight.data[:2] * x

    assert step.prepare(torch.empty(2, device="meta"))
    assert weight.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "body, reason",
    [
        (lambda x: x.sum().item(), "reads a value"),
        (lambda x: torch_xla.sync(), "syncs"),
        (lambda x: x[x > 0], "reads a value"),
        (lambda x: x + torch.ones(7, device=x.device), "size"),
        (lambda x: xm.add_step_closure(print), "closures"),
        (lambda x: torch_xla.compile(lambda: x + 1)(), "syncs"),
        (lambda x: 1 / 0, "ZeroDivisionError"),
    ],
    ids=["item", "sync", "mask", "error", "closure", "nested", "python"],
)
def test_what_cannot_be_prepared(device, caplog, body, reason):
    """The log says why; everything works as before, and the call itself raises what it raises."""
    weight = torch.ones(3, device=device)

    def step(x):
        weight.add_(1)
        return body(x)

    assert not torch_xla.compile(step).prepare(torch.empty(3, device="meta"))
    assert reason in caplog.text
    assert weight.tolist() == [1, 1, 1]
    assert (weight + 1).sum().item() == 6
    torch_xla.sync(wait=True)


def test_an_interrupt_leaves_nothing_behind(device):
    weight = torch.ones(3, device=device)

    @torch_xla.compile
    def step(x):
        weight.add_(x)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        step.prepare(torch.empty(3, device="meta"))
    assert weight.tolist() == [1, 1, 1]


def test_only_functions_are_prepared():
    with pytest.raises(TypeError, match="only a function"):
        torch_xla.compile().prepare()


def test_tensors_that_escape_a_rehearsal(device):
    """One that depends on nothing of it lives on; one that does says what it is."""
    kept = []
    escape = [kept.append]  # a builtin method: out of the snapshot's sight

    @torch_xla.compile
    def step(x):
        escape[0](torch.arange(3, device=x.device) + 1)
        escape[0](x + 1)
        return x.sum()

    snapshotless = kept
    assert step.prepare(torch.empty(3, device="meta"))
    if snapshotless:
        assert kept[0].tolist() == [1, 2, 3]
        with pytest.raises(RuntimeError, match="prepared"):
            kept[1].tolist()
    assert torch.ones(2, device=device).sum().item() == 2


def test_another_thread_syncs_meanwhile(device):
    go, over = threading.Event(), []

    def other():
        go.wait()
        over.append((torch.ones(3, device=device) + 1).sum().item())

    thread = threading.Thread(target=other)
    thread.start()

    @torch_xla.compile
    def step(x):
        go.set()
        y = x
        for _ in range(1000):
            y = y + 1
        return y

    assert step.prepare(torch.empty(3, device="meta"))
    thread.join()
    assert over == [6]


def test_the_process_may_end_at_once(run_python):
    done = run_python("""
        import torch, torch_xla
        step = torch_xla.compile(lambda x: (x @ x).softmax(0).cumsum(1).std())
        for size in range(10, 30):
            assert step.prepare(torch.empty(size, size, device="meta"))
    """)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


# --- Loaders that announce ---


def bucketed() -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [batch(size) for size in (4, 4, 4, 6, 4, 6, 9, 9)]


@pytest.mark.parametrize("form", ["step", "function"])
def test_a_loader_announces_new_shapes_once(device, metrics, form):
    _, _, step = trainer(device, clip=True)
    announced = []

    def tell(like):
        x, y = like
        assert x.device.type == y.device.type == "meta"
        announced.append(len(x))
        assert step.prepare(x, y)

    loader = pl.MpDeviceLoader(bucketed(), device, announce=step if form == "step" else tell)
    for _ in range(2):
        for x, y in loader:
            step(x, y)
            settle()
    assert compiles() == 3
    if form == "function":
        # The first batch needs no announcement: its step comes next.
        assert announced in ([6, 9], [4, 6, 9])
    else:
        assert prepared() in (2, 3)


def test_announcing_changes_no_number(device):
    def run(announce):
        model, stepper, step = trainer(device, clip=True)
        options = {"announce": step} if announce else {}
        loader = pl.MpDeviceLoader(bucketed(), device, **options)
        return [step(x, y).item() for x, y in loader], state_of(model, stepper)

    losses, state = run(True)
    plain_losses, plain = run(False)
    assert losses == plain_losses
    assert_same(state, plain)


def test_one_device_only(device):
    with pytest.raises(ValueError, match="one device"):
        pl.ParallelLoader([], ["xla:0", "xla:0"], announce=print)


# --- Snapshots ---


def test_a_snapshot_of_containers_and_instances():
    class Thing:
        pass

    thing = Thing()
    thing.items = {"a": [1, 2], "b": {3}}
    thing.queue = collections.deque([1], maxlen=2)
    thing.ordered = collections.OrderedDict(x=1)
    thing.again = thing
    shared = thing.items["a"]
    snapshot = Snapshot([thing])
    shared.append(3)
    thing.items["b"].add(4)
    thing.items["c"] = 1
    thing.queue.extend([5, 6])
    thing.ordered["y"] = thing.ordered.pop("x")
    thing.other = 1
    snapshot.restore()
    assert thing.items == {"a": [1, 2], "b": {3}}
    assert thing.items["a"] is shared
    assert thing.queue == collections.deque([1], maxlen=2)
    assert thing.ordered == collections.OrderedDict(x=1)
    assert not hasattr(thing, "other")


def test_a_snapshot_leaves_alone_what_threads_share():
    class Shared:
        def __init__(self):
            self.lock = threading.Lock()
            self.items = []

    shared = Shared()
    snapshot = Snapshot([[shared]])
    shared.items.append(1)
    snapshot.restore()
    assert shared.items == [1]


def test_a_snapshot_of_cells_and_tensors():
    value = torch.zeros(2)

    def step():
        nonlocal value
        value += 1
        value = value * 2
        step.calls = 1

    first = value
    snapshot = Snapshot([step])
    step()
    snapshot.restore()
    assert value is first
    assert value.tolist() == [0, 0]
    assert value._version == 0
    assert not hasattr(step, "calls")


def test_sizes_that_are_known_already(device):
    """Of a mask that was counted before: nothing is read, but the step goes by the number."""
    mask = torch.tensor([True, False, True]).to(device)

    @torch_xla.compile
    def step(x):
        return x[mask]

    assert step(torch.arange(3.0).to(device)).tolist() == [0.0, 2.0]
    step.prepare(torch.empty(3, device="meta"))
    assert step(torch.arange(3.0).to(device)).tolist() == [0.0, 2.0]


def test_steps_that_reach_too_much(device, caplog):
    items = [(i,) for i in range(120_000)]

    @torch_xla.compile
    def step(x):
        return x + len(items)

    assert not step.prepare(torch.empty(3, device="meta"))
    assert "cannot be put back" in caplog.text


def test_generators_and_data_of_the_host_are_left_alone(device):
    loader = torch.utils.data.DataLoader(torch.arange(4.0))
    loader.epoch = 0
    draw = random.Random(0)
    seen = []

    @torch_xla.compile
    def step(x):
        seen.append(draw.random())
        loader.epoch += 1  # of what other threads use, nothing is put back
        return x + 1

    assert step.prepare(torch.empty(3, device="meta"))
    assert seen == [] and loader.epoch == 1
    assert draw.random() == random.Random(0).random()
