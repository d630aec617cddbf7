"""A step that fails costs nothing: what it was to update holds what it held, somebody is told,
once, and the next step works."""

from __future__ import annotations

import inspect
import threading
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
from torch_xla._extension import _XLAC

HELPERS = str(Path(__file__).parents[1] / "api")


def computed(numbers: torch.Tensor) -> torch.Tensor:
    """The same on the device of `numbers`, which the host does not know there."""
    return (numbers.float() * 2).long() // 2


def compiles() -> int:
    data = met.metric_data("CompileTime")
    return data[0] if data else 0


class Job:
    """A small language model, whose tokens and labels the device computes."""

    def __init__(self, device, optimizer, layers=1, replay=False, **options):
        torch.manual_seed(5)
        hidden = [layer for _ in range(layers) for layer in (nn.Linear(8, 8), nn.Tanh())]
        self.model = nn.Sequential(
            nn.Embedding(10, 8), *hidden, nn.LayerNorm(8), nn.Linear(8, 4)
        ).to(device)
        self.optimizer = optimizer(self.model.parameters(), **options)
        self.step = torch_xla.compile(self.train, replay=True) if replay else self.train

    def train(self, tokens, labels):
        self.optimizer.zero_grad()
        scores = self.model(computed(tokens))
        loss = F.cross_entropy(scores, computed(labels))
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def state(self):
        """Parameters and their moments. Counters depend on nothing that may be wrong."""
        tensors = list(self.model.parameters())
        for state in self.optimizer.state.values():
            tensors += [value for name, value in state.items() if name != "step"]
        return [tensor.detach().cpu() for tensor in tensors]


GOOD = (torch.tensor([1, 5, 9, 0]), torch.tensor([0, 3, 2, 1]))
WRONG = {
    "a token": (torch.tensor([1, 5, 10, 0]), GOOD[1], "aten::embedding at train"),
    "a label": (GOOD[0], torch.tensor([0, 4, 2, 1]), "aten::nll_loss.* at train"),
}
OPTIMIZERS = [
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    (torch.optim.AdamW, {"lr": 0.01, "fused": True}),
    (torch.optim.AdamW, {"lr": 0.01, "capturable": True}),
]


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("layers", [1, 12], ids=["in the call", "behind it"])
@pytest.mark.parametrize("optimizer, options", OPTIMIZERS)
@pytest.mark.parametrize("what", WRONG)
def test_a_failed_check_costs_no_state(device, metrics, what, optimizer, options, layers):
    tokens, labels, where = WRONG[what]
    job, plain = (Job(device, optimizer, layers, **options) for _ in range(2))
    good = [tensor.to(device) for tensor in GOOD]
    for each in (job, plain):
        for _ in range(2):
            last = each.step(*good)
            torch_xla.sync()
    before, programs = job.state(), compiles()
    wrong = tokens.to(device), labels.to(device)
    loss = job.step(*wrong)
    torch_xla.sync()
    with pytest.raises(IndexError, match=where + r"@test_failed_steps.py:\d+: index \d+ is out of"):
        loss.item()
    assert same(job.state(), before)
    for each in (job, plain):
        for _ in range(2):
            last = each.step(*good)
            torch_xla.sync(wait=True)
    assert torch.isfinite(last.cpu())
    if optimizer is torch.optim.SGD:  # others count steps
        assert same(job.state(), plain.state())
    assert compiles() == programs


@pytest.mark.parametrize("read", [True, False], ids=["read", "not read"])
def test_replayed_steps_lose_nothing(device, metrics, read):
    job, plain = (Job(device, torch.optim.AdamW, replay=True, fused=True) for _ in range(2))
    good = [tensor.to(device) for tensor in GOOD]
    for each in (job, plain):
        for _ in range(5):
            each.step(*good)
    assert job.step.traced_because == ""
    xm.wait_device_ops()
    before = job.state()
    wrong = [tensor.to(device) for tensor in WRONG["a token"][:2]]
    loss = job.step(*wrong)
    if read:
        with pytest.raises(IndexError, match="aten::embedding at train"):
            loss.item()
    else:
        with pytest.raises(IndexError, match="aten::embedding at train"):
            torch_xla.sync(wait=True)
    assert same(job.state(), before)
    for each in (job, plain):
        each.step(*good)
    assert job.step.traced_because == ""
    assert not same(job.state(), before)


def wrong_row(x):
    return x[computed(torch.tensor([7], device=x.device))]


TELLING = {
    "sync": torch_xla.sync,
    "sync that waits": lambda: torch_xla.sync(wait=True),
    "wait": xm.wait_device_ops,
    "step": lambda: torch_xla.step().__enter__(),
}


@pytest.mark.parametrize("name", TELLING)
def test_a_failed_check_that_nobody_reads_is_told_once(device, name):
    x = torch.ones(4, device=device)
    total = torch.zeros(1, device=device)
    torch_xla.sync()
    total += wrong_row(x)
    torch_xla.sync()
    assert total.tolist() == [0]  # not an error: it holds what it held. And the step is over.
    with pytest.raises(IndexError, match=r"aten::index at wrong_row@.*index 7 is out of bounds"):
        TELLING[name]()
    TELLING[name]()
    torch_xla.sync(wait=True)
    xm.wait_device_ops()
    assert (total + 1).tolist() == [1]


def test_a_read_that_launches_tells(device):
    x = torch.ones(4, device=device)
    total = torch.zeros(1, device=device)
    torch_xla.sync()
    total += wrong_row(x)
    with pytest.raises(IndexError, match="aten::index at wrong_row"):
        (x + 1).tolist()
    assert (x + 1).tolist() == [2] * 4
    assert total.tolist() == [0]
    torch_xla.sync(wait=True)


@pytest.mark.parametrize("what", WRONG)
def test_a_read_of_what_is_updated_costs_no_state(device, what):
    job = Job(device, torch.optim.SGD, lr=0.1, momentum=0.9)
    job.step(*(tensor.to(device) for tensor in GOOD))
    before = job.state()
    job.step(*(tensor.to(device) for tensor in WRONG[what][:2]))
    with pytest.raises(IndexError, match=WRONG[what][2]):
        next(job.model.parameters()).tolist()  # the step runs for it
    assert same(job.state(), before)
    job.step(*(tensor.to(device) for tensor in GOOD))
    assert not same(job.state(), before)


def test_a_second_failed_check_beside_a_lost_tensor_costs_no_state(device):
    job = Job(device, torch.optim.SGD, lr=0.1)
    good, wrong = (
        [tensor.to(device) for tensor in batch] for batch in (GOOD, WRONG["a label"][:2])
    )
    average = job.step(*good) * 1
    torch_xla.sync()

    def is_told():
        with pytest.raises(IndexError, match=r"aten::nll_loss.* at train"):
            torch_xla.sync(wait=True)

    for batch in (wrong, good):
        average = 0.9 * average + 0.1 * job.step(*batch)  # not in place: lost with the first error
        is_told()
    before = job.state()
    average = 0.9 * average + 0.1 * job.step(*wrong)
    is_told()  # of the average
    is_told()  # of this step
    assert same(job.state(), before)
    torch_xla.sync(wait=True)


def test_whoever_read_it_is_not_told_again(device):
    wrong = wrong_row(torch.ones(4, device=device))
    torch_xla.sync()
    for _ in range(2):
        with pytest.raises(IndexError, match="aten::index"):
            wrong.tolist()
    torch_xla.sync(wait=True)
    xm.wait_device_ops()


def test_what_does_not_depend_on_a_wrong_index_is_right(device):
    x = torch.arange(4.0, device=device)
    steps = torch.zeros((), device=device)
    torch_xla.sync()
    steps += 1
    doubled = x * 2
    wrong, right = wrong_row(x), x[computed(torch.tensor([2], device=device))]
    after = wrong + doubled
    torch_xla.sync()
    assert steps.item() == 1 and doubled.tolist() == [0, 2, 4, 6] and right.tolist() == [2]
    for tensor in (wrong, after):
        with pytest.raises(IndexError, match="aten::index"):
            tensor.cpu()


def test_what_is_made_of_a_wrong_result_in_a_later_step(device):
    x = torch.arange(4.0, device=device)
    total = torch.zeros(4, device=device)
    wrong = wrong_row(x)
    torch_xla.sync()
    total += wrong  # the next step reads what the one before could not compute
    unrelated = x + 1
    with pytest.raises(IndexError, match="aten::index"):
        torch_xla.sync()
    assert total.tolist() == [0] * 4
    assert unrelated.tolist() == [1, 2, 3, 4]
    torch_xla.sync(wait=True)


def test_the_line_is_that_of_this_call(device, metrics):
    def one(x, i):
        return x[computed(i)]

    def other(x, i):
        return x[computed(i)]

    x = torch.ones(4, device=device)
    index = torch.tensor([1], device=device)
    assert one(x, index).tolist() == [1]
    programs = compiles()
    for function in (other, one):
        line = inspect.getsourcelines(function)[1] + 1
        with pytest.raises(IndexError, match=rf"{function.__name__}@test_failed_steps.py:{line}:"):
            function(x, index + 4).tolist()
    # The program of the right index served all.
    assert compiles() <= programs + 1


def test_many_checks(device):
    x = torch.arange(4.0, device=device)
    rows = [x[computed(torch.tensor([i], device=device))] for i in range(4)] * 20
    rows += [x[computed(torch.tensor([i % 5], device=device))] for i in range(70)]
    torch_xla.sync()
    for i, row in enumerate(rows[80 : 80 + 60]):
        if i % 5 == 4:
            with pytest.raises(IndexError, match="index 4 is out of bounds"):
                row.item()
        elif i < 50:
            assert row.item() == i % 5


def test_compiled_graphs_lose_nothing(device):
    table = torch.arange(4.0, device=device)

    @torch.compile(backend="openxla")
    def step(x, i):
        x.add_(table[(i.float() * 2).long() // 2])
        return x * 2

    x = torch.zeros(1, device=device)
    index = torch.tensor([1], device=device)
    assert step(x, index).tolist() == [2]
    with pytest.raises(IndexError, match="index 8 is out of bounds"):
        step(x, index * 8).tolist()
    assert x.tolist() == [1]
    assert step(x, index).tolist() == [4]


# --- Launches ---


REFUSING = """
    import os
    import torch
    import torch_xla
    import torch_xla.core.xla_model as xm
    from refusing_plugin import Refusals, outcome

    weights = [torch.zeros(4, device="xla") for _ in range(int(os.environ["COUNT"]))]

    def step():
        for weight in weights:
            weight.add_(1)
        return weights[0] * 2

    for _ in range(3):
        step()
        torch_xla.sync()
    xm.wait_device_ops()
    refusals = Refusals()
"""


@pytest.mark.parametrize(
    "how", ["torch_xla.sync()", "torch_xla.sync(wait=True)", "xm.wait_device_ops()"]
)
def test_a_failed_launch_behind_is_told_once(run_python, how):
    """Nothing that reads memory can be launched: no value can be computed by itself either."""
    process = run_python(
        REFUSING
        + f"""
    refusals.more_arguments_than = 0
    doubled = step()
    print(outcome(torch_xla.sync))
    print(outcome(lambda: {how}))
    refusals.more_arguments_than = None
    print(outcome(lambda: {how}))
    print(weights[0].tolist(), weights[-1].tolist(), outcome(doubled.tolist))
    doubled = step()
    torch_xla.sync(wait=True)
    print(weights[0].tolist(), weights[-1].tolist(), doubled.tolist())
    """,
        COUNT="100",
        PYTHONPATH=HELPERS,
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.splitlines() == [
        "None",
        "refused",
        "None",
        f"{[3.0] * 4} {[3.0] * 4} refused",
        f"{[4.0] * 4} {[4.0] * 4} {[8.0] * 4}",
    ]


@pytest.mark.parametrize("count", ["3", "100"], ids=["in the call", "behind it"])
def test_steps_on_top_of_a_launch_that_is_lost(run_python, count):
    """They are lost with it, and the state is that before all of them."""
    process = run_python(
        REFUSING
        + """
    refusals.more_arguments_than = 0
    told = 0
    for _ in range(3):
        step()
        told += outcome(torch_xla.sync) == "refused"
    told += outcome(xm.wait_device_ops) == "refused"
    refusals.more_arguments_than = None
    print(told > 0, {tuple(weight.tolist()) for weight in weights})
    step()
    torch_xla.sync(wait=True)
    print({tuple(weight.tolist()) for weight in weights})
    """,
        COUNT=count,
        PYTHONPATH=HELPERS,
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.splitlines() == [
        "True {(3.0, 3.0, 3.0, 3.0)}",
        "{(4.0, 4.0, 4.0, 4.0)}",
    ]


# --- Values to blame ---


def too_large(device):
    return torch.zeros(1 << 20, 1 << 17, device=device)  # 512 GiB


def test_the_one_to_blame_is_found_with_few_programs(device, metrics):
    weights = [torch.zeros(i + 1, device=device) for i in range(60)]
    torch_xla.sync()
    programs = compiles()
    for weight in weights:
        weight.add_(1)
    huge = too_large(device)
    with pytest.raises(torch.OutOfMemoryError, match=r"512.0 GiB"):
        torch_xla.sync()
    assert compiles() - programs <= 4
    assert all(weight.sum().item() == weight.numel() for weight in weights)
    del huge


def test_where_all_are_to_blame_few_programs_are_tried(device, metrics):
    weights = [torch.full((i + 2,), 3.0, device=device) for i in range(60)]
    torch_xla.sync()
    programs = compiles()
    huge = too_large(device) + weights[0][0]
    xm.optimization_barrier_([huge])  # or XLA would see that one element is enough
    number = huge[0, 0]
    for weight in weights:
        weight.add_(number)
    del huge, number
    with pytest.raises(torch.OutOfMemoryError):
        torch_xla.sync()
    assert compiles() - programs <= 10
    # They hold what they held.
    assert all(weight.tolist() == [3.0] * weight.numel() for weight in weights)
    weights[0].add_(1)
    torch_xla.sync(wait=True)
    assert weights[0].tolist() == [4, 4]


# --- Errors of programs, met elsewhere than at reads ---


@pytest.mark.parametrize("meet", [lambda: torch_xla.sync(wait=True), xm.wait_device_ops])
def test_what_a_kernel_throws_has_its_type(device, meet):
    a = torch.full((3, 3), float("nan"), device=device)
    torch_xla.sync()
    values = torch.linalg.eigvalsh(a)
    match = r"aten::_linalg_eigh at test_what_a_kernel_throws_has_its_type@"
    with pytest.raises(torch.linalg.LinAlgError, match=match):
        torch_xla.sync()
        meet()
    meet()  # told once
    with pytest.raises(torch.linalg.LinAlgError, match=match):
        values.cpu()


# --- What the host knows ---


def test_indices_of_replayed_steps_are_looked_at(device, metrics):
    table = torch.arange(12.0, device=device).view(4, 3)

    @torch_xla.compile(replay=True)
    def step(i, labels):
        table.add_(1)
        return F.embedding(i, table).sum() + F.cross_entropy(table, labels)

    good = torch.tensor([0, 3]).to(device), torch.tensor([0, -100, 2, 1]).to(device)
    for _ in range(5):
        step(*good)
    assert step.traced_because == ""
    for wrong in (
        (torch.tensor([0, 4]).to(device), good[1]),
        (good[0], torch.tensor([0, 3, 2, 1]).to(device)),
    ):
        before = table.cpu() if not torch_xla.sync() else None
        with pytest.raises(IndexError):
            step(*wrong)
        assert torch.equal(table.cpu(), before + 1)  # what came before the error ran, as on CPU
    for _ in range(5):
        step(*good)
    assert step.traced_because == ""
    # The program does not look, so that the step is traced for what the device computed.
    with pytest.raises(IndexError, match="aten::embedding"):
        step(computed(torch.tensor([0, 4], device=device)), good[1]).item()


def test_index_put_into_an_expanded_tensor(device):
    for d in ("cpu", device):
        x = torch.zeros(1, 2, device=d)
        index = torch.tensor([1, 3]).to(d)
        with pytest.raises(IndexError, match="index 3 is out of bounds for dimension 0"):
            x.expand(3, 2).index_put_((index,), torch.ones(2, 2, device=d))
    assert x.tolist() == [[0, 0]]


# --- Threads ---


@pytest.mark.parametrize("rehearsed", [False, True])
def test_draws_beside_a_rehearsal_are_not_repeated(device, rehearsed):
    """Another thread draws while a step is prepared, and goes on after that."""
    drawn = []

    def draw():
        drawn.append(torch.rand(100, device=device))

    torch.manual_seed(3)
    draw()
    rehearsal = _XLAC._Rehearsal(str(device)) if rehearsed else None
    if rehearsal:
        F.dropout(torch.ones(8, device=device), 0.5)
    thread = threading.Thread(target=draw)
    thread.start()
    thread.join()
    if rehearsal:
        rehearsal.cancel()
    draw()
    torch.manual_seed(3)
    expected = [torch.rand(100, device=device) for _ in range(3)]
    assert same([numbers.cpu() for numbers in drawn], [numbers.cpu() for numbers in expected])
