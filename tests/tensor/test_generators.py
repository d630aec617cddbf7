"""torch.Generator on xla, and the random state of each device."""

import copy

import pytest
import torch

import torch_xla


def test_generators(device):
    g = torch.Generator(device="xla")
    assert g.device == device
    assert g.initial_seed() == torch.Generator().initial_seed()
    g.manual_seed(7)
    first = torch.rand(4, generator=g, device=device)
    second = torch.rand(4, generator=g, device=device)
    g.manual_seed(7)
    assert torch.equal(torch.rand(4, generator=g, device=device), first)
    assert torch.equal(torch.rand(4, generator=g, device=device), second)
    assert not torch.equal(first, second)
    assert g.seed() == g.initial_seed()


def test_state_of_a_generator(device):
    g = torch.Generator(device=device).manual_seed(3)
    torch.rand(5, generator=g, device=device)
    state = g.get_state()
    assert state.dtype == torch.uint8
    assert state.device.type == "cpu"
    want = torch.randn(5, generator=g, device=device)
    other = torch.Generator(device=device)
    other.set_state(state)
    assert torch.equal(torch.randn(5, generator=other, device=device), want)
    g.set_state(state)
    assert torch.equal(torch.randn(5, generator=g, device=device), want)
    clone = g.clone_state() if hasattr(g, "clone_state") else copy.deepcopy(g)
    assert torch.equal(clone.get_state(), g.get_state())


@pytest.mark.parametrize(
    "state",
    [torch.zeros(3, dtype=torch.uint8), torch.zeros(16), torch.zeros(0, dtype=torch.uint8)],
)
def test_wrong_states_are_refused(device, state):
    g = torch.Generator(device=device).manual_seed(3)
    before = g.get_state()
    with pytest.raises((RuntimeError, TypeError)):
        g.set_state(state)
    assert torch.equal(g.get_state(), before)


def test_generators_do_not_disturb_each_other(device):
    torch.manual_seed(0)
    alone = torch.rand(4, device=device)
    torch.manual_seed(0)
    torch.rand(4, generator=torch.Generator(device=device), device=device)
    assert torch.equal(torch.rand(4, device=device), alone)


def test_a_generator_of_another_device_is_refused(device):
    with pytest.raises(RuntimeError, match="generator"):
        torch.rand(2, generator=torch.Generator(), device=device)
    with pytest.raises(RuntimeError, match="xla"):
        torch.rand(2, generator=torch.Generator(device=device))


def test_fork_rng_restores(device):
    torch.manual_seed(5)
    want = torch.rand(3, device=device)
    torch.manual_seed(5)
    with torch.random.fork_rng(devices=[0], device_type="xla"):
        torch.rand(10, device=device)
        torch.manual_seed(99)
    assert torch.equal(torch.rand(3, device=device), want)


def test_state_survives_a_file(device, tmp_path):
    torch.manual_seed(11)
    torch.rand(3, device=device)
    torch.save(torch.xla.get_rng_state(), tmp_path / "state.pt")
    want = torch.rand(3, device=device)
    torch.manual_seed(12)
    torch.xla.set_rng_state(torch.load(tmp_path / "state.pt"))
    assert torch.equal(torch.rand(3, device=device), want)


def test_draws_differ_but_compile_once(device, metrics):
    draws = []
    for _ in range(4):
        draws.append(torch.rand(8, device=device))
        torch_xla.sync()
        compiled = metrics.counter_value("UncachedCompile")
        draws[-1] = draws[-1].tolist()
        if len(draws) == 1:
            first = compiled
    assert compiled == first
    assert len({tuple(draw) for draw in draws}) == 4


def test_dropout_masks(device):
    torch.manual_seed(0)
    x = torch.ones(10_000, device=device)
    a, b = (torch.nn.functional.dropout(x, 0.3) for _ in range(2))
    assert not torch.equal(a, b)
    for y in (a, b):
        kept = (y != 0).float().mean().item()
        assert abs(kept - 0.7) < 0.03
        torch.testing.assert_close(y.max().item(), 1 / 0.7)
