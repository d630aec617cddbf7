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


def other_row(x):
    return x[computed(torch.tensor([9], device=x.device))]


def test_all_that_a_step_found_is_told_at_once(device):
    x = torch.ones(4, device=device)
    totals = [torch.zeros(1, device=device) for _ in range(3)]
    torch_xla.sync()
    for total, row in zip(totals, (wrong_row, other_row, other_row), strict=True):
        total += row(x)
    torch_xla.sync()
    found = (
        r"wrong_row@.*index 7 .*and of the same step 2 more, first aten::index at other_row.* 9 "
    )
    with pytest.raises(IndexError, match=found):
        torch_xla.sync(wait=True)
    torch_xla.sync(wait=True)
    assert [total.tolist() for total in totals] == [[0]] * 3


def test_a_second_error_of_a_step_is_told(device):
    x = torch.ones(4, device=device)
    wrong, other = wrong_row(x), other_row(x)
    torch_xla.sync()
    with pytest.raises(IndexError, match=r"wrong_row@.*index 7 is out of bounds[^()]*$"):
        wrong.tolist()
    with pytest.raises(IndexError, match=r"other_row@.*index 9 is out of bounds"):
        torch_xla.sync(wait=True)
    torch_xla.sync(wait=True)
    with pytest.raises(IndexError, match="other_row"):
        other.tolist()


def test_what_looks_at_one_index_many_times_is_one_error(device):
    x = torch.ones(4, device=device)
    total = torch.zeros(1, device=device)
    torch_xla.sync()
    index = computed(torch.tensor([7], device=device))
    total += sum(x[index] for _ in range(100))
    torch_xla.sync()
    with pytest.raises(IndexError, match=r"index 7 is out of bounds[^()]*$"):
        torch_xla.sync(wait=True)
    torch_xla.sync(wait=True)
    assert total.tolist() == [0]


def test_errors_of_inputs_of_a_later_step(device):
    x = torch.ones(4, device=device)
    wrong, other = wrong_row(x), other_row(x)
    torch_xla.sync()
    wrong, other = wrong * 2, other * 2
    with pytest.raises(IndexError, match="wrong_row"):
        torch_xla.sync()
    with pytest.raises(IndexError, match="other_row"):
        torch_xla.sync(wait=True)
    torch_xla.sync(wait=True)
    for tensor, match in ((wrong, "wrong_row"), (other, "other_row")):
        with pytest.raises(IndexError, match=match):
            tensor.tolist()


def test_a_new_tensor_of_zeros_is_not_taken_for_a_result(device):
    x = torch.ones(4, device=device)
    total = torch.zeros(1, device=device)
    total += wrong_row(x)
    torch_xla.sync()
    with pytest.raises(IndexError, match="aten::index at wrong_row"):
        total.tolist()
    assert total.tolist() == [0]  # as on CPU, after the error
    torch_xla.sync(wait=True)
    total += x[:1]
    assert total.tolist() == [1]


@pytest.mark.parametrize("how", ["copy_", "in a view", "after zero_"])
def test_a_tensor_that_is_overwritten_as_a_whole(device, how):
    x = torch.ones(4, device=device)
    buffer = torch.arange(1.0, device=device) + 3
    torch_xla.sync()
    for row, expected in ((wrong_row, 3), (lambda x: x[:1], 1)):
        new = row(x)
        if how == "copy_":
            buffer.copy_(new)
        elif how == "in a view":
            buffer.view(1, 1).copy_(new[None])
        else:
            buffer.zero_()
            buffer.copy_(new)
        torch_xla.sync()
        if row is wrong_row:
            with pytest.raises(IndexError, match="wrong_row"):
                torch_xla.sync(wait=True)
        assert buffer.tolist() == [expected]
    torch_xla.sync(wait=True)


@pytest.mark.parametrize("optimizer, options", OPTIMIZERS)
def test_the_very_first_step_may_fail(device, optimizer, options):
    job, plain = (Job(device, optimizer, **options) for _ in range(2))
    good = [tensor.to(device) for tensor in GOOD]
    loss = job.step(*(tensor.to(device) for tensor in WRONG["a label"][:2]))
    torch_xla.sync()
    with pytest.raises(IndexError):
        loss.item()
    told = 0
    for _ in range(4):
        try:
            job.step(*good)
            torch_xla.sync(wait=True)
        except IndexError:
            told += 1
    assert told <= 1
    for _ in range(4 - told):
        plain.step(*good)
        torch_xla.sync()
    if optimizer is torch.optim.SGD:  # others count steps
        assert same(job.state(), plain.state())


# Each writes `row` into `cache` at a position that the device computed.
WRITES = {
    "index_copy": lambda cache, i, row: cache.index_copy_(1, i, row),
    "index_put": lambda cache, i, row: cache.__setitem__((slice(None), i), row),
    "index_add": lambda cache, i, row: cache.index_add_(1, i, row),
    "scatter": lambda cache, i, row: cache.scatter_(1, i[:, None].expand(64, 1, 32), row),
    "in a view": lambda cache, i, row: cache[:, :1].copy_(row * (cache[0, 0, 0] + cache[0, i])),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_row_of_a_cache_costs_no_copy_of_it(device, name):
    rows = 512
    row = torch.ones(64, 1, 32)

    def decode(d, positions):
        """The cache after each position, or after an error."""
        cache = torch.zeros(64, rows, 32, device=d)
        contents, seen = [], []
        for number in positions:
            position = torch.tensor([number]).to(d)
            torch_xla.sync()
            try:
                WRITES[name](cache, computed(position), row.to(d) * (number + 1))
                seen.append(cache[:, :2].sum().cpu())
            except (IndexError, RuntimeError):
                pass
            contents.append(cache.clone().cpu())
        return contents, seen

    positions = [3, 0, rows - 1, rows, 5]
    for got, expected in zip(decode(device, positions), decode("cpu", positions), strict=True):
        assert same(got, expected)
    cache = torch.zeros(64, rows, 32, device=device)
    for number in (3, 4):
        position, last = torch.tensor([number]).to(device), row.to(device)
        torch_xla.sync()
        WRITES[name](cache, computed(position), last)
        torch_xla.sync(wait=True)
    program = _XLAC._xla_last_program()
    assert program["alias_bytes"] >= cache.nbytes
    assert program["temp_bytes"] < cache.nbytes


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


@pytest.mark.parametrize("what", WRONG)
def test_a_step_that_could_not_be_compiled_and_a_wrong_one_on_top(device, what):
    """The state is what it was before both: they become one program."""
    job = Job(device, torch.optim.SGD, lr=0.1, momentum=0.9)
    good, wrong = ([tensor.to(device) for tensor in batch] for batch in (GOOD, WRONG[what][:2]))
    job.step(*good)
    torch_xla.sync(wait=True)
    before = job.state()
    job.step(*good)
    torch_xla.set_custom_compile_options({"xla_no_such_flag": True})
    try:
        for _ in range(2):
            with pytest.raises(RuntimeError, match="xla_no_such_flag"):
                torch_xla.sync()
    finally:
        torch_xla.set_custom_compile_options({})
    job.step(*wrong)
    torch_xla.sync()
    with pytest.raises(IndexError, match=WRONG[what][2]):
        torch_xla.sync(wait=True)
    assert same(job.state(), before)
    job.step(*good)
    torch_xla.sync(wait=True)
    assert not same(job.state(), before)


@pytest.mark.parametrize("count", ["3", "100"], ids=["in the call", "behind it"])
def test_steps_on_top_of_one_that_nothing_could_run(run_python, count):
    process = run_python(
        REFUSING
        + """
    refusals.left = 1000
    told = 0
    for _ in range(3):
        step()
        told += outcome(torch_xla.sync) == "refused"
    told += outcome(xm.wait_device_ops) == "refused"
    refusals.left = 0
    held = {tuple(weight.tolist()) for weight in weights}
    print(told > 0, len(held), {3.0, 4.0, 5.0, 6.0} >= {number for row in held for number in row})
    before = weights[0].tolist()[0]
    step()
    torch_xla.sync(wait=True)
    print(weights[0].tolist()[0] - before, len({tuple(weight.tolist()) for weight in weights}))
    """,
        COUNT=count,
        PYTHONPATH=HELPERS,
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.splitlines() == ["True 1 True", "1.0 1"]


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
