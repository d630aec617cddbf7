"""Indices, classes and probabilities that the device computed: what CPU raises at the call is
raised at the next read, with the operator and the line."""

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
