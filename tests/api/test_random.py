"""Random state: torch.manual_seed, generators, numbers and tensors of state."""

import pytest
import torch
import torch.utils.checkpoint

import torch_xla
import torch_xla.core.xla_model as xm


def draw(device, n=5):
    return torch.rand(n, device=device).tolist()


@pytest.mark.parametrize(
    "seed",
    [
        torch.manual_seed,
        torch_xla.manual_seed,
        torch.xla.manual_seed,
        torch.xla.manual_seed_all,
        xm.set_rng_state,
        lambda n: torch_xla.manual_seed(n, torch_xla.device()),
    ],
    ids=["torch", "torch_xla", "torch.xla", "torch.xla all", "xm", "of a device"],
)
def test_seeding(device, seed):
    seed(42)
    first = draw(device)
    assert draw(device) != first
    seed(42)
    assert draw(device) == first
    seed(43)
    assert draw(device) != first


@pytest.mark.parametrize("seed", [0, 1, -1, 2**63, 2**64 - 1])
def test_seeds_that_torch_takes(device, seed):
    torch.manual_seed(seed)
    first = draw(device)
    torch.manual_seed(seed)
    assert draw(device) == first


def test_seeding_before_the_first_use_of_a_device(run_python):
    source = """
        import torch, torch_xla
        torch.manual_seed(7)
        assert not torch_xla._XLAC._xla_runtime_is_initialized()
        print(torch.rand(3, device="xla").tolist())
        """
    first, second = run_python(source), run_python(source)
    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout


def test_the_state_as_a_number(device):
    xm.set_rng_state(1234)
    assert xm.get_rng_state() == 1234 == xm.get_rng_state(device)
    draw(device)
    state = xm.get_rng_state()
    assert isinstance(state, int)
    assert torch.tensor(state).item() == state, "accelerate puts it into a tensor"
    first = draw(device)
    xm.set_rng_state(state)
    assert draw(device) == first
    xm.set_rng_state(state, device)
    assert draw(device) == first


def test_the_state_as_a_tensor(device):
    torch.manual_seed(3)
    draw(device)
    state = torch.xla.get_rng_state()
    assert state.dtype == torch.uint8 and state.device.type == "cpu"
    first = draw(device)
    torch.xla.set_rng_state(state)
    assert torch.equal(torch.xla.get_rng_state(), state), "reading changes nothing"
    assert draw(device) == first
    states = torch.xla.get_rng_state_all()
    assert len(states) == torch_xla.device_count()
    torch.xla.set_rng_state_all(states)
    with pytest.raises((RuntimeError, TypeError)):
        torch.xla.set_rng_state(torch.zeros(3, dtype=torch.uint8))


def test_fork_rng(device):
    torch.manual_seed(5)
    with xm.fork_rng():
        inside, inside_cpu = draw(device), torch.rand(2).tolist()
    assert draw(device) == inside
    assert torch.rand(2).tolist() == inside_cpu
    torch.manual_seed(5)
    with torch.random.fork_rng(devices=[0], device_type="xla"):
        assert draw(device) == inside
    assert draw(device) == inside
    with xm.fork_rng(enabled=False):
        draw(device)
    assert draw(device) != inside


def test_generators_of_ones_own(device):
    generator = torch.Generator(device="xla")
    generator.manual_seed(11)
    first = torch.rand(4, device=device, generator=generator).tolist()
    draw(device)
    generator.manual_seed(11)
    assert torch.rand(4, device=device, generator=generator).tolist() == first
    assert generator.initial_seed() == 11
    other = generator.clone_state() if hasattr(generator, "clone_state") else None
    assert other is None or torch.equal(other.get_state(), generator.get_state())


def test_seeding_and_drawing_compile_nothing_new(device, metrics):
    for seed in range(4):
        torch.manual_seed(seed)
        torch.rand(9, device=device) + 1
        x = torch.rand(9, device=device)
        torch_xla.sync()
        if seed == 0:
            metrics.clear_all()
    assert metrics.counter_value("UncachedCompile") is None
    assert len(set(x.tolist())) == 9


@pytest.mark.parametrize("use_reentrant", [True, False])
@pytest.mark.parametrize("own", [False, True], ids=["torch", "torch_xla"])
def test_dropout_under_checkpointing(device, use_reentrant, own):
    import torch_xla.utils.checkpoint

    checkpoint = torch_xla.utils.checkpoint.checkpoint if own else torch.utils.checkpoint.checkpoint

    def f(x):
        return torch.nn.functional.dropout(x, 0.5) * x

    x = torch.ones(64, device=device, requires_grad=True)
    torch.manual_seed(1)
    y = checkpoint(f, x, use_reentrant=use_reentrant)
    y.sum().backward()
    # With the same mask in both passes, the gradient is 2 m x and the output m x^2.
    torch.testing.assert_close(x.grad.cpu(), 2 * y.detach().cpu())
    assert 0 < (y.detach().cpu() == 0).sum() < 64
