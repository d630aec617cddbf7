"""Indices, classes, probabilities and divisors that the device computed: what CPU raises at the
call is raised at the next read, with the operator and the line."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import torch_xla
from torch_xla._extension import _XLAC

# Each takes positions of which one may be out of range for a size of 4.
INDEXING = {
    "index": lambda x, i: x[i],
    "index_put": lambda x, i: x.index_put((i,), x[0]),
    "index_select": lambda x, i: x.index_select(0, i),
    "index_add": lambda x, i: x.index_add(0, i, torch.ones(i.numel(), 3, device=x.device)),
    "index_copy": lambda x, i: x.index_copy(0, i, torch.ones(i.numel(), 3, device=x.device)),
    "index_fill": lambda x, i: x.index_fill(0, i, 2.0),
    "gather": lambda x, i: x.gather(0, i[:, None]),
    "scatter": lambda x, i: x.scatter(0, i[:, None], 1.0),
    "scatter_add": lambda x, i: x.scatter_add(0, i[:, None], torch.ones_like(x)),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i[:, None], torch.ones_like(x), "amax"),
    "index_reduce": lambda x, i: x.index_reduce(0, i, torch.ones_like(x)[: i.numel()], "prod"),
    "take": lambda x, i: x[:, 0].take(i),
    "put": lambda x, i: x[:, 0].clone().put_(i, torch.ones(i.numel(), device=x.device)),
    "embedding": lambda x, i: F.embedding(i, x),
    "embedding_bag": lambda x, i: F.embedding_bag(i[None], x),
    "nll_loss": lambda x, i: F.nll_loss(torch.ones(i.numel(), 4, device=x.device), i),
    "cross_entropy": lambda x, i: F.cross_entropy(torch.ones(i.numel(), 4, device=x.device), i),
}


def positions(device, *numbers: int) -> torch.Tensor:
    """Computed on the device: the host does not know them."""
    return (torch.tensor(numbers, device=device).float() * 2).long() // 2


def raised(function, *args) -> Exception:
    with pytest.raises((RuntimeError, IndexError)) as error:
        result = function(*args)
        if isinstance(result, torch.Tensor):
            result.cpu()
    return error.value


@pytest.mark.parametrize("name", INDEXING)
def test_index_out_of_range(name, device):
    function = INDEXING[name]
    on_cpu = raised(function, torch.ones(4, 3), positions("cpu", 1, 4))
    x, index = torch.ones(4, 3, device=device), positions(device, 1, 4)
    result = function(x, index)  # not here: the host cannot know
    error = raised(lambda: result)
    assert type(error) is type(on_cpu)
    assert "index 4 is out of bounds" in str(error)
    assert "aten::" in str(error) and "test_value_checks.py" in str(error)


@pytest.mark.parametrize("name", INDEXING)
def test_index_in_range(name, device):
    function = INDEXING[name]
    expected = function(torch.ones(4, 3), positions("cpu", 1, 3))
    got = function(torch.ones(4, 3, device=device), positions(device, 1, 3))
    torch.testing.assert_close(got.cpu(), expected)


def test_negative_positions(device):
    x = torch.arange(4.0, device=device)
    assert x[positions(device, -1, -4)].tolist() == [3, 0]
    assert "index -5" in str(raised(lambda: x[positions(device, -1, -5)]))
    assert "index -1" in str(raised(lambda: x.index_select(0, positions(device, -1))))


def test_class_to_ignore(device):
    scores = torch.ones(3, 4, device=device)
    loss = F.nll_loss(scores, positions(device, 1, -100, 3))
    assert loss.item() == -1
    loss = F.nll_loss(scores, positions(device, 1, -1, 3))
    assert isinstance(raised(lambda: loss), IndexError)


def test_other_results_are_not_touched(device):
    """A program that failed takes what it computes with it, and nothing else."""
    before = torch.ones(3, device=device) + 1
    torch_xla.sync()
    wrong = torch.ones(3, device=device)[positions(device, 3)]
    raised(lambda: wrong)
    assert before.tolist() == [2, 2, 2]
    assert (before + 1).tolist() == [3, 3, 3]


def test_contents_of_an_earlier_step(device):
    index = positions(device, 5)
    torch_xla.sync()
    x = torch.ones(4, device=device)
    assert "index 5 is out of bounds" in str(raised(lambda: x[index]))


# Positions that operators of ours found need no look.
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.gather(0, x.argmax(0, keepdim=True)),
        lambda x: x.gather(1, x.sort(1).indices),
        lambda x: x[x.max(1).indices, torch.arange(3, device=x.device)],
        lambda x: F.embedding(torch.arange(3, device=x.device), x),
        lambda x: x[x > 0],
        lambda x: x[x[:, 0].nonzero()[:, 0]],
    ],
)
def test_known_positions(function, device):
    x = torch.randn(3, 3, device=device)
    text = _XLAC._get_xla_tensors_text([function(x)])
    assert "check_index" not in text


def test_switched_off(device):
    _XLAC._set_check_values(False)
    try:
        x = torch.arange(4.0, device=device)
        assert x[positions(device, 9)].tolist() == [3]
    finally:
        _XLAC._set_check_values(True)


DRAWS = {
    "negative weights": lambda d: torch.multinomial(torch.tensor([1.0, -1.0], device=d), 1),
    "infinite weights": lambda d: torch.multinomial(torch.tensor([1.0, torch.inf], device=d), 1),
    "weights without a number": lambda d: torch.multinomial(
        torch.tensor([1.0, torch.nan], device=d), 5, replacement=True
    ),
    "no weight": lambda d: torch.multinomial(torch.zeros(2, 3, device=d), 1),
    "a negative rate": lambda d: torch.poisson(torch.tensor([1.0, -1.0], device=d)),
    "more than certain": lambda d: torch.bernoulli(torch.tensor([1.5], device=d)),
    "a negative deviation": lambda d: torch.normal(0.0, torch.tensor([1.0, -1.0], device=d)),
}


@pytest.mark.parametrize("name", DRAWS)
def test_parameters_of_draws(name, device):
    on_cpu, error = (raised(DRAWS[name], d) for d in ("cpu", device))
    assert type(error) is type(on_cpu)
    assert "aten::" in str(error) and "test_value_checks.py" in str(error)


def test_expanded_target_of_index_put(device):
    """What meets in one element: the last counts, or the sum."""

    def run(d, accumulate):
        x = torch.zeros(3, 1, 2, device=d)
        values = torch.arange(6.0, device=d).reshape(2, 3, 1).expand(2, 3, 2)
        index = torch.tensor([0, 2], device=d)
        with pytest.warns(UserWarning, match="expanded"):
            x.expand(3, 3, 2).index_put_((index,), values, accumulate=accumulate)
        return x.cpu()

    for accumulate in (False, True):
        torch.testing.assert_close(run(device, accumulate), run("cpu", accumulate))


def test_expanded_dim_of_an_index(device):
    def run(d):
        x = torch.zeros(1, 2, device=d)
        with pytest.warns(UserWarning, match="expanded"):
            x.expand(3, 2)[torch.tensor([2, 1], device=d)] += torch.ones(2, 2, device=d)
            x.expand(3, 2)[x.expand(3, 2) > 0] = 7
        return x.cpu()

    torch.testing.assert_close(run(device), run("cpu"))


# Each takes a device and a function that gives a tensor of numbers there.
REFUSED = {
    "probability": lambda d, t: F.binary_cross_entropy(t(0.5, 1.5), t(1.0, 0.0)),
    "no number": lambda d, t: F.binary_cross_entropy(t(0.5, float("nan")), t(1.0, 0.0)),
    "probability of a target": lambda d, t: F.binary_cross_entropy(t(0.5, 0.2), t(1.0, 2.0)),
    "weighted probability": lambda d, t: F.binary_cross_entropy(
        t(-0.1, 0.2), t(1.0, 0.0), t(1.0, 2.0), reduction="none"
    ),
    "too few values": lambda d, t: t(0.0, 0.0).masked_scatter(t(1.0, 1.0) > 0, t(1.0)),
    "no values": lambda d, t: t(0.0, 0.0).masked_scatter(t(1.0, 0.0) > 0, t()),
    "class too large": lambda d, t: F.one_hot(t(0, 3).long(), 3),
    "negative class": lambda d, t: F.one_hot(t(0, -1).long(), 3),
    **{
        f"{name} by zero, {dtype}": lambda d, t, f=f, dtype=dtype: f(
            t(5, 3).to(dtype), t(2, 0).to(dtype)
        )
        for dtype in (torch.uint8, torch.int32, torch.int64)
        for name, f in {
            "floor": torch.floor_divide,
            "trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
            "remainder": torch.remainder,
            "fmod": torch.fmod,
        }.items()
    },
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_numbers(name, device):
    def numbers(d):
        return lambda *values: torch.tensor(values, device=d) * 2 / 2

    on_cpu, error = (raised(REFUSED[name], d, numbers(d)) for d in ("cpu", device))
    assert type(error) is type(on_cpu)
    assert str(on_cpu) in str(error) and "test_value_checks.py" in str(error)


def test_a_wrong_probability_costs_no_parameter(device):
    w = torch.ones(2, device=device, requires_grad=True)
    torch_xla.sync()
    loss = F.binary_cross_entropy(w * 2, torch.ones(2, device=device))
    loss.backward()
    with torch.no_grad():
        w -= w.grad
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        torch_xla.sync(wait=True)
    assert w.tolist() == [1, 1]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64], ids=str)
def test_zero_that_the_host_knows(dtype, device):
    x, zero = torch.tensor([5, 3], dtype=dtype, device=device), torch.zeros(2, dtype=dtype)
    for divide in (torch.floor_divide, torch.remainder, torch.fmod):
        for divisor in (0, zero[0], zero.to(device), torch.zeros(2, dtype=dtype, device=device)):
            if isinstance(divisor, torch.Tensor) and dtype == torch.uint8 and divisor.dim():
                continue  # the host keeps no ranges of bytes
            with pytest.raises(RuntimeError, match=r"^ZeroDivisionError"):
                divide(x, divisor)
        assert divide(x[:0], 0).numel() == 0
    with pytest.raises(RuntimeError, match=r"^ZeroDivisionError"):
        7 // zero.to(device) if dtype != torch.uint8 else x // 256
    assert (x // 2).tolist() == [2, 1] and (x % 3).tolist() == [2, 0]


def test_known_divisors_are_not_looked_at(device, metrics):
    x, y = torch.tensor([5, -3], device=device), torch.tensor([2, 3], device=device)
    torch_xla.sync()
    text = _XLAC._get_xla_tensors_text([x // y, x % 3, x // -2])
    assert "check_divisor" not in text
    assert "check_divisor" in _XLAC._get_xla_tensors_text([x // (y + 1)])


def test_classes_of_the_host_are_refused_at_the_call(device):
    for labels, message in (((0, 5), "smaller than num_classes"), ((0, -1), "non-negative")):
        with pytest.raises(RuntimeError, match=message):
            F.one_hot(torch.tensor(labels, device=device), 3)
    for call in (
        lambda d: F.one_hot(torch.tensor([], dtype=torch.int64, device=d)),
        lambda d: F.one_hot(torch.tensor([1.0], device=d), 3),
    ):
        assert str(raised(call, device)) == str(raised(call, "cpu"))
    labels = torch.tensor([[0, 2], [1, 1]])
    for classes in (-1, 3, 5):
        assert torch.equal(F.one_hot(labels.to(device), classes).cpu(), F.one_hot(labels, classes))


def test_masks_that_do_not_broadcast(device):
    for size in ((2, 4, 1), (3,), (2, 4)):
        for call in (
            lambda d, size=size: torch.zeros(4, device=d).masked_fill_(
                torch.ones(size, dtype=torch.bool, device=d), 1
            ),
            lambda d, size=size: torch.zeros(4, device=d).masked_scatter_(
                torch.ones(size, dtype=torch.bool, device=d), torch.zeros(20, device=d)
            ),
        ):
            error, on_cpu = raised(call, device), raised(call, "cpu")
            assert type(error) is type(on_cpu)
            assert str(error).replace("XLA", "CPU").replace("xla", "CPU") == str(on_cpu)


# Rows of tensors without elements, and of dimensions without places.
EMPTY = {
    "index_fill": lambda x, dim, i, rows: x.index_fill(dim, i, 1),
    "index_add": lambda x, dim, i, rows: x.index_add(dim, i, rows),
    "index_copy": lambda x, dim, i, rows: x.index_copy(dim, i, rows),
    "index_select": lambda x, dim, i, rows: x.index_select(dim, i),
    "index_reduce": lambda x, dim, i, rows: x.index_reduce(dim, i, rows, "prod"),
}


@pytest.mark.parametrize("name", EMPTY)
@pytest.mark.parametrize(
    "sizes, dim",
    [((0,), 0), ((0, 3), 0), ((3, 0), 1), ((3, 0), 0), ((2, 0, 3), 1), ((0, 4), 1), ((0, 0), 0)],
)
def test_empty_dimensions(name, sizes, dim, device):
    def run(d, position, spare):
        index = torch.tensor([position]).to(d)
        rows = torch.zeros([1 if i == dim else size for i, size in enumerate(sizes)], device=d)
        x = torch.zeros(9, device=d)[: 9 if spare else 0]
        x = x.as_strided(sizes, torch.zeros(sizes).stride()) if spare else torch.zeros(sizes).to(d)
        try:
            return EMPTY[name](x, dim, index, rows).size()
        except (RuntimeError, IndexError) as error:
            return type(error)

    for position in (0, 4):
        for spare in (False, True):
            assert run(device, position, spare) == run("cpu", position, spare)


def test_fill_of_rows_that_share_memory(device):
    def run(d, dim):
        x = torch.zeros(3, device=d)
        with pytest.warns(UserWarning, match="expanded"):
            x.expand(2, 3).index_fill_(dim, torch.tensor([0], device=d), 5)
        return x.tolist()

    assert [run(device, dim) for dim in (0, 1)] == [run("cpu", dim) for dim in (0, 1)]


def test_only_the_gradient_is_read(device):
    weight = torch.ones(4, 3, device=device, requires_grad=True)
    F.embedding(positions(device, 1, 4), weight).sum().backward()
    assert isinstance(raised(lambda: weight.grad), IndexError)


@pytest.mark.parametrize("unpool", [F.max_unpool1d, F.max_unpool2d, F.max_unpool3d])
@pytest.mark.parametrize("wrong", [64, -1])
def test_unpooling(unpool, wrong, device):
    rank = {F.max_unpool1d: 1, F.max_unpool2d: 2, F.max_unpool3d: 3}[unpool]
    x = torch.ones(1, 1, *[1] * (rank - 1), 2, device=device)
    error = raised(lambda: unpool(x, positions(device, 0, wrong).view(x.shape), 2))
    assert f"index {wrong} is out of bounds" in str(error)
    assert unpool(x, positions(device, 0, 1).view(x.shape), 2).sum().item() == 2


def test_size_of_repeated(device):
    repeats = positions(device, 1, 2)
    assert torch.ones(2, device=device).repeat_interleave(repeats, output_size=3).numel() == 3
    for size in (2, 5):
        error = raised(lambda n=size: torch.repeat_interleave(repeats, output_size=n))
        assert "allocated size does not match required size" in str(error)
