"""torch_xla.compile(replay=True): same numbers as tracing, and never a stale one."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from trainer import trainer

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met


def replays() -> int:
    return met.counter_value("ReplayedStep") or 0


def compiles() -> int:
    data = met.metric_data("CompileTime")
    return data[0] if data else 0


def batches(device, count):
    generator = torch.Generator().manual_seed(3)
    for _ in range(count):
        x = torch.randn(16, 8, generator=generator)
        yield x.to(device), torch.randint(4, (16,), generator=generator).to(device)


OPTIMIZERS = [
    (torch.optim.AdamW, {"fused": True}),
    (torch.optim.AdamW, {"capturable": True}),
    (torch.optim.SGD, {"lr": 0.1}),
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    (torch.optim.RMSprop, {"lr": 0.01}),
]


@pytest.mark.parametrize("optimizer, options", OPTIMIZERS, ids=lambda x: str(x)[-30:])
def test_a_hundred_steps_agree_bit_for_bit(device, metrics, optimizer, options):
    """Dropout included: the random stream moves on as if each step were traced."""

    def run(replay):
        model, _, step = trainer(device, replay=replay, optimizer=optimizer, **options)
        losses = [step(x, y) for x, y in batches(device, 100)]
        return torch.stack(losses).cpu(), {k: v.cpu() for k, v in model.state_dict().items()}

    losses, state = run(False)
    assert replays() == 0
    replayed_losses, replayed_state = run(True)
    assert replays() >= 95
    assert torch.equal(losses, replayed_losses)
    for name, value in state.items():
        assert torch.equal(value, replayed_state[name]), name


def test_gradients_and_results_are_those_of_the_last_call(device, metrics):
    model, _, step = trainer(device, replay=True, optimizer=torch.optim.SGD, lr=0.0, dropout=0.0)
    data = list(batches(device, 6))
    results = [step(x, y) for x, y in data]
    assert replays() > 0
    for (x, y), result in zip(data, results, strict=True):
        torch.testing.assert_close(result, F.cross_entropy(model(x), y).detach())
    expected = torch.autograd.grad(F.cross_entropy(model(data[-1][0]), data[-1][1]),
                                   list(model.parameters()))  # fmt: skip
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


def test_numbers_of_a_plain_adam_change_on_the_host(device, metrics):
    _, _, step = trainer(device, replay=True)
    for x, y in batches(device, 8):
        step(x, y)
    assert replays() == 0
    assert "a number changes from call to call" in step.traced_because
    assert "fused=True" in step.traced_because


def test_a_schedule_takes_effect_and_compiles_nothing(device, metrics):
    def run(replay):
        model, optimizer, step = trainer(device, replay=replay, optimizer=torch.optim.SGD, lr=0.1)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10, 0.5)
        for x, y in batches(device, 40):
            step(x, y)
            schedule.step()
        return model.state_dict()

    expected = run(False)
    before = compiles()
    got = run(True)
    assert compiles() == before
    assert replays() >= 20
    for name in expected:
        assert torch.equal(expected[name], got[name]), name


def test_train_and_eval(device, metrics):
    model, _, _ = trainer(device)
    forward = torch_xla.compile(lambda x: model(x).detach(), replay=True)
    x = next(batches(device, 1))[0]
    model.eval()
    for _ in range(5):
        evaluated = forward(x)
    assert forward.traced_because == ""
    torch.testing.assert_close(evaluated, model(x).detach())
    model.train()
    trained = [forward(x) for _ in range(5)]
    assert not torch.equal(trained[-1], trained[-2])  # dropout draws anew
    model.eval()
    assert not torch.equal(forward(x), evaluated)  # running statistics have moved


def test_arguments_of_other_shapes_dtypes_and_numbers(device, metrics):
    @torch_xla.compile(replay=True)
    def scale(x, factor, *, shift=0.0):
        return {"y": x * factor + shift, "factor": factor}

    for _ in range(3):
        for size in (3, 4):
            for factor in (2.0, 3.0):
                for shift in (0.0, 1.0):
                    x = torch.arange(float(size)).to(device)
                    result = scale(x, factor, shift=shift)
                    assert result["y"].tolist() == [i * factor + shift for i in range(size)]
                    assert result["factor"] == factor
    assert replays() == 8
    assert scale(torch.arange(3).to(device), 2.0)["y"].dtype == torch.float32
    assert scale(torch.ones(4, 3).to(device).t(), 2.0)["y"].stride() == (1, 3)


def test_changed_tensors_are_seen(device, metrics):
    weight = torch.ones(4, device=device)
    frozen = torch.full((4,), 10.0, device=device)
    torch_xla.sync()

    @torch_xla.compile(replay=True)
    def step(x):
        weight.add_(x)
        return weight * frozen

    x = torch.ones(4).to(device)
    for i in range(4):
        assert step(x).tolist() == [(i + 2) * 10.0] * 4
    assert step.traced_because == ""
    weight.zero_()  # state that someone else writes, pending
    assert step(x).tolist() == [10.0] * 4
    assert step.traced_because == ""
    with torch.no_grad():
        weight.copy_(torch.full((4,), 5.0))
    assert step(x).tolist() == [60.0] * 4
    frozen.fill_(2.0)  # a constant
    assert step(x).tolist() == [14.0] * 4
    assert "written to" in step.traced_because
    kept = weight.detach().clone()
    assert step(x).tolist() == [16.0] * 4
    assert kept.tolist() == [7.0] * 4
    assert weight.tolist() == [8.0] * 4


def test_closure_and_global_numbers(device, metrics):
    factor = 2.0

    def body(x):
        return x * factor

    step = torch_xla.compile(body, replay=True)
    x = torch.ones(2).to(device)
    for _ in range(4):
        assert step(x).tolist() == [2.0, 2.0]
    assert step.traced_because == ""
    factor = 3.0
    assert step(x).tolist() == [3.0, 3.0]


def test_the_caller_keeps_its_arguments(device, metrics):
    @torch_xla.compile(replay=True)
    def step(x):
        return x * 2, x

    for i in range(5):
        x = torch.full((3,), float(i)).to(device)
        doubled, same = step(x)
        assert same is x
        assert x.tolist() == [i] * 3 and doubled.tolist() == [2 * i] * 3
    assert replays() > 0


def test_arguments_written_in_place(device, metrics):
    step = torch_xla.compile(lambda x: x.mul_(2), replay=True)
    for i in range(5):
        x = torch.full((3,), float(i)).to(device)
        torch_xla.sync()
        assert step(x) is x
        assert x.tolist() == [2 * i] * 3


def test_reads_inside_are_traced_with_the_reason(device, metrics):
    step = torch_xla.compile(lambda x: x * x.sum().item(), replay=True)
    for i in range(6):
        x = torch.full((2,), float(i)).to(device)
        assert step(x).tolist() == [2 * i * i] * 2
    assert replays() == 0
    assert "programs" in step.traced_because


def test_step_closures_run_each_time(device, metrics):
    seen = []

    @torch_xla.compile(replay=True)
    def step(x):
        y = x + 1
        xm.add_step_closure(lambda t: seen.append(t.sum().item()), args=(y,))
        return y

    for i in range(5):
        step(torch.full((2,), float(i)).to(device))
    assert seen == [2 * (i + 1) for i in range(5)]
    assert step.traced_because == "it adds step closures"


def test_an_error_in_the_step_leaves_nothing_behind(device, metrics):
    fail = torch.zeros(1)

    @torch_xla.compile(replay=True)
    def step(x):
        if x.shape[0] == 3:
            raise ValueError("three")
        return x + 1

    with pytest.raises(ValueError, match="three"):
        step(torch.ones(3).to(device))
    for _ in range(4):
        assert step(torch.ones(2).to(device)).tolist() == [2, 2]
    assert step.traced_because == ""
    assert fail.item() == 0


def test_reseeding_starts_the_stream_again(device, metrics):
    step = torch_xla.compile(lambda x: F.dropout(x, 0.5), replay=True)
    x = torch.ones(64).to(device)

    def draws():
        torch.manual_seed(5)
        return [step(x).cpu() for _ in range(6)]

    first, second = draws(), draws()
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(first[0], first[1])
    assert replays() > 0


def test_methods(device, metrics):
    class Holder:
        def __init__(self):
            self.weight = torch.ones(2, device=device)
            self.factor = 2.0

        @torch_xla.compile(replay=True)
        def step(self, x):
            self.weight.add_(x)
            return self.weight * self.factor

    holder = Holder()
    torch_xla.sync()
    x = torch.ones(2).to(device)
    for i in range(5):
        assert holder.step(x).tolist() == [2.0 * (i + 2)] * 2
    holder.factor = 3.0
    assert holder.step(x).tolist() == [3.0 * 7] * 2


def test_results_share_what_they_shared(device, metrics):
    @torch_xla.compile(replay=True)
    def step(x):
        y = x + 1
        return y, y.view(2, 2), y[1:]

    for _ in range(5):
        y, square, tail = step(torch.zeros(4).to(device))
        y.mul_(3)
        assert square.tolist() == [[3, 3], [3, 3]] and tail.tolist() == [3, 3, 3]
    assert replays() > 0


def changed_weight(module):
    module.weight = nn.Parameter(torch.full((1, 1), 7.0, device=module.weight.device))


def changed_hook(module):
    module.register_forward_hook(lambda module, args, result: result * 7)


@pytest.mark.parametrize("change", [changed_weight, changed_hook])
def test_modules_that_change(device, metrics, change):
    module = nn.Linear(1, 1, bias=False).to(device)
    nn.init.ones_(module.weight)
    old = module.weight
    step = torch_xla.compile(lambda x: module(x).detach(), replay=True)
    x = torch.ones(1, 1, device=device)
    assert [step(x).item() for _ in range(5)] == [1.0] * 5
    assert replays() > 0
    change(module)
    assert step(x).item() == 7.0
    assert old.item() == 1.0


def test_submodules_flags_and_numbers(device, metrics):
    module = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Dropout(0.0)).to(device)
    nn.init.ones_(module[0].weight)
    step = torch_xla.compile(lambda x: module(x).detach(), replay=True)
    x = torch.ones(1, 1, device=device)
    assert [step(x).item() for _ in range(5)] == [1.0] * 5
    module[1].p = 1.0
    assert step(x).item() == 0.0
    module[1] = nn.Identity()
    module[0] = nn.Linear(1, 1, bias=False).to(device)
    nn.init.constant_(module[0].weight, 3.0)
    assert step(x).item() == 3.0


def test_frozen_parameters(device, metrics):
    module = nn.Linear(1, 1, bias=False).to(device)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)

    @torch_xla.compile(replay=True)
    def step(x):
        optimizer.zero_grad()
        (module(x).sum() + x.sum().requires_grad_()).backward()
        optimizer.step()

    x = torch.ones(1, 1, device=device)
    for _ in range(5):
        step(x)
    assert step.traced_because == ""
    module.weight.requires_grad_(False)
    before = module.weight.item()
    for _ in range(4):
        step(x)
    assert module.weight.item() == before


def test_lists_and_class_attributes(device, metrics):
    class Scale:
        shift = 0.0

    factors, scale = [1.0], Scale()
    step = torch_xla.compile(lambda x: x * factors[0] + scale.shift, replay=True)
    x = torch.ones(1, device=device)
    assert [step(x).item() for _ in range(5)] == [1.0] * 5
    factors[0] = 2.0
    assert step(x).item() == 2.0
    Scale.shift = 1.0
    assert step(x).item() == 3.0


def test_one_tensor_in_two_places(device, metrics):
    step = torch_xla.compile(lambda x, y: (x.add_(1), y * 2)[1], replay=True)
    a, b = torch.zeros(3, device=device), torch.zeros(3, device=device)
    for _ in range(4):
        assert step(a, b).tolist() == [0.0] * 3
    assert step(a, a).tolist() == [10.0] * 3


def test_steps_within_steps(device, metrics):
    total = torch.zeros(1, device=device)
    torch_xla.sync()
    inner = torch_xla.compile(lambda x: total.add_(x), replay=True)
    outer = torch_xla.compile(lambda x: inner(x) + 1, replay=True)
    x = torch.ones(1, device=device)
    for i in range(10):
        if i < 4:
            inner(x)
        assert outer(x).item() == total.item() + 1
    assert total.item() == 14.0


class Settings:
    scale = 2.0

    def __init__(self):
        self.shift = 1.0
        self.more = {"bias": 0.0, "all": [3.0]}


def test_objects_and_what_hangs_on_them(device, metrics):
    settings = Settings()
    step = torch_xla.compile(
        lambda x: (
            x * settings.scale + settings.shift + settings.more["bias"] + settings.more["all"][0]
        ),
        replay=True,
    )
    x = torch.ones(1, device=device)
    assert [step(x).item() for _ in range(5)] == [6.0] * 5
    assert step.traced_because == ""
    settings.scale = 3.0  # covers the class's
    assert step(x).item() == 7.0
    settings.more["all"][0] = 4.0
    assert step(x).item() == 8.0
    settings.more["bias"] = -1.0
    assert step(x).item() == 7.0
    settings = Settings()  # another object is looked into, too
    assert [step(x).item() for _ in range(5)] == [6.0] * 5
    assert step.traced_because == ""
    settings.shift = 2.0
    assert step(x).item() == 7.0


def test_objects_that_die_are_not_mistaken_for_new_ones(device, metrics):
    """Functions made anew tend to get the address of the one before."""
    factor = None

    def scale(number):
        return lambda x: x * number

    step = torch_xla.compile(lambda x: factor(x), replay=True)
    x = torch.ones(1, device=device)
    for number in range(12):
        factor = scale(float(number))
        assert [step(x).item() for _ in range(4)] == [float(number)] * 4
        factor = None


def test_numbers_of_inner_functions_and_defaults(device, metrics):
    global inner_factor

    def step(x, shift=[0.0]):  # noqa: B006
        return sum(y * inner_factor for y in [x]) + shift[0]

    inner_factor = 2.0
    replayed = torch_xla.compile(step, replay=True)
    x = torch.ones(1, device=device)
    assert [replayed(x).item() for _ in range(5)] == [2.0] * 5
    assert replayed.traced_because == ""
    inner_factor = 3.0
    assert replayed(x).item() == 3.0
    step.__defaults__[0][0] = 1.0
    assert replayed(x).item() == 4.0


def test_zero_has_a_sign_and_nan_equals_itself(device, metrics):
    number = 0.0
    step = torch_xla.compile(lambda x: torch.copysign(x, number), replay=True)
    x = torch.ones(1, device=device)
    assert [step(x).item() for _ in range(5)] == [1.0] * 5
    number = -0.0
    assert step(x).item() == -1.0
    number = float("nan")
    for _ in range(4):
        step(x)
    assert step.traced_because == ""


def test_arrays_of_the_host_are_no_guards(device, metrics):
    numpy = pytest.importorskip("numpy")
    step = torch_xla.compile(lambda x, numbers: x * float(numbers[0]), replay=True)
    x, numbers = torch.ones(1, device=device), numpy.ones(1)
    for i in range(5):
        numbers[0] = i
        assert step(x, numbers).item() == i
    assert "cannot be compared" in step.traced_because


def test_buffers_of_a_module_on_the_host(device, metrics):
    module = nn.Linear(1, 1, bias=False).to(device)
    nn.init.ones_(module.weight)
    module.register_buffer("factor", torch.tensor(2.0))
    step = torch_xla.compile(lambda x: (module(x) * module.factor.item()).detach(), replay=True)
    x = torch.ones(1, 1, device=device)
    assert [step(x).item() for _ in range(5)] == [2.0] * 5
    assert step.traced_because == ""
    module.factor.fill_(3.0)
    assert step(x).item() == 3.0


def test_more_steps_than_are_kept(device, metrics):
    step = torch_xla.compile(lambda x, k: x * k, replay=True)
    x = torch.ones(1, device=device)
    for _ in range(4):
        for k in range(20):
            assert step(x, float(k)).item() == k
    before = replays()
    for _ in range(4):
        for k in (1.0, 2.0):
            assert step(x, k).item() == k
    assert replays() >= before + 2


def test_loggers_are_not_watched(device, metrics):
    log = logging.getLogger("test_loggers_are_not_watched")

    def body(x):
        log.debug("traced")
        return x + 1

    step = torch_xla.compile(body, replay=True)
    x = torch.ones(1, device=device)
    for _ in range(5):
        step(x)
        logging.getLogger("another").info("more")
        log.setLevel(log.level + 1)
    assert step.traced_because == ""


class Many:
    """A step of more than a hundred arrays: it is launched behind the caller's back."""

    def __init__(self, device, replay):
        torch.manual_seed(3)
        self.model = nn.Sequential(
            *(layer for _ in range(20) for layer in (nn.Linear(8, 8), nn.Dropout(0.1)))
        ).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2, fused=True)
        self.step = torch_xla.compile(self._step, replay=replay)

    def _step(self, x):
        self.optimizer.zero_grad()
        loss = (self.model(x) - x).pow(2).mean()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def state(self):
        return [parameter.detach().cpu() for parameter in self.model.parameters()]


def test_many_arrays_agree_bit_for_bit(device, metrics):
    def run(replay):
        job = Many(device, replay)
        losses, norms = [], []
        for i in range(60):
            losses.append(job.step(torch.full((4, 8), float(i)).to(device)))
            if i % 7 == 0:  # syncs and reads between two calls
                norms.append(job.model[0].weight.grad.norm().item())
                norms.append(job.model[-2].weight.detach().sum())
        return losses, norms, job.state()

    expected = run(False)
    before, started = compiles(), replays()
    got = run(True)
    assert compiles() == before
    assert replays() - started >= 50
    for a, b in zip(expected, got, strict=True):
        for x, y in zip(a, b, strict=True):
            assert torch.equal(torch.as_tensor(x).cpu(), torch.as_tensor(y).cpu())


def test_many_arrays_read_by_another_thread(device, metrics):
    weights = [torch.zeros(2, device=device) for _ in range(100)]
    torch_xla.sync()

    def body(x):
        for weight in weights:
            weight.add_(x)

    step = torch_xla.compile(body, replay=True)
    x = torch.ones(2).to(device)
    for _ in range(5):
        step(x)
    assert step.traced_because == ""
    done, seen, failures = threading.Event(), [], []

    def read():
        try:
            while not done.wait(0.002):
                seen.append(weights[50][0].item())
        except Exception as error:
            failures.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(60):
        step(x)
    done.set()
    reader.join()
    assert not failures
    assert all(number == int(number) for number in seen) and sorted(seen) == seen
    assert weights[0].tolist() == weights[50].tolist() == [65.0] * 2


def test_many_arrays_and_what_holds_on_to_them(device, metrics):
    job = Many(device, True)
    x = torch.ones(4, 8).to(device)
    kept = []
    for i in range(12):
        job.step(x)
        if i > 6:
            kept.append(job.model[0].weight.detach().clone())
            kept.append(job.model[0].weight.detach().cpu())
    for a, b in zip(kept[::2], kept[1::2], strict=True):
        assert torch.equal(a.cpu(), b)
    assert not torch.equal(kept[1], kept[3])


def test_the_process_may_end_right_after_a_call(run_python):
    """With a launch behind, and one that is forked off meanwhile."""
    process = run_python(
        """
        import os
        import torch
        import torch_xla

        device = torch_xla.device()
        weights = [torch.ones(4, 4, device=device) for _ in range(200)]
        torch_xla.sync()

        def body(x):
            for weight in weights:
                weight.add_(x)
            return weights[-1].sum()

        step = torch_xla.compile(body, replay=True)
        x = torch.ones(4, 4).to(device)
        for _ in range(6):
            last = step(x)
        assert step.traced_because == ""
        if os.fork() == 0:
            try:
                step(x)
            except RuntimeError as error:
                assert "fork" in str(error)
                raise SystemExit(0)
            raise SystemExit(1)
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
        print(last.item())
        step(x)
        """
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.split() == [str(16.0 * 7)]


@pytest.mark.parametrize("count", [3, 100], ids=["in the call", "behind it"])
def test_a_launch_that_fails(run_python, count):
    """The plugin refuses one launch. The error comes with the result, or with the next call."""
    process = run_python(
        """
        import os
        import torch
        import torch_xla
        from refusing_plugin import Refusals, outcome

        device = torch_xla.device()
        weights = [torch.zeros(4, device=device) for _ in range(int(os.environ["COUNT"]))]
        torch_xla.sync()

        def body(x):
            for weight in weights:
                weight.add_(x)
            return weights[0] * 2

        step = torch_xla.compile(body, replay=True)
        x = torch.ones(1).to(device)
        for _ in range(5):
            step(x)
        assert step.traced_because == ""
        weights[0].tolist()  # nothing is under way any more

        refusals = Refusals()
        refusals.left = 1
        result = outcome(lambda: step(x))
        if result != "refused":
            print(outcome(result.tolist))
        # As it was before the call that failed.
        print(weights[0].tolist(), weights[-1].tolist())
        if result != "refused":
            refusals.left = 1
            step(x)
            print(outcome(lambda: step(x)), weights[-1].tolist())
        print(step(x).tolist(), weights[-1].tolist(), repr(step.traced_because))
        """,
        COUNT=str(count),
        PYTHONPATH=str(Path(__file__).parent),
    )
    assert process.returncode == 0, process.stderr
    before, after = str([5.0] * 4), str([6.0] * 4)
    expected = [f"{before} {before}", f"{[12.0] * 4} {after} ''"]
    if count == 100:
        expected = ["refused", expected[0], f"refused {before}", expected[1]]
    assert process.stdout.splitlines() == expected
