"""Reads of one whole number that little work makes: they do not cut the step around them."""

from __future__ import annotations

import pytest
import torch

import torch_xla
from torch_xla.debug.metrics import counter_value


def pending(tensor: torch.Tensor) -> bool:
    return torch_xla._XLAC._check_tensor_need_materialization([tensor])[0]


def compilations() -> int:
    return counter_value("UncachedCompile") or 0


@pytest.mark.parametrize(
    "look",
    [
        lambda mask: bool(mask.bool().all()),
        lambda mask: mask.sum().item(),
        lambda mask: int((mask != 0).sum(-1).max()),
        lambda mask: mask[0, 0].item(),
    ],
    ids=["all", "sum", "longest", "element"],
)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool], ids=str)
def test_a_look_leaves_the_step_whole(device, metrics, look, dtype):
    cpu = torch.tensor([[1, 1, 0], [1, 0, 0]], dtype=dtype)
    mask = cpu.to(device)
    hidden = torch.randn(2, 3, device=device) * 2
    assert look(mask) == look(cpu)
    assert pending(hidden)
    torch_xla.sync()
    assert not pending(hidden)


def test_looks_at_one_thing_share_a_program(device, metrics):
    cast = torch.tensor([1, 1, 0]).to(device).to(torch.bool)
    for _ in range(3):
        assert (cast.sum() == 3).item() is False
    assert compilations() <= 1


@pytest.mark.parametrize(
    "read",
    [
        lambda x, mask: (x * mask).sum().item(),  # a float: the loss of a small model, say
        lambda x, mask: (x.sum() > 0).item(),
        lambda x, mask: mask.cpu(),
        lambda x, mask: (mask.expand(40000, 3) + 1).sum().item(),
    ],
    ids=["float", "of floats", "many elements", "much work"],
)
def test_other_reads_compute_everything(device, read):
    x = torch.randn(3, device=device) * 2
    mask = torch.tensor([1, 1, 0]).to(device) + 1
    read(x, mask)
    assert not pending(x)
    assert not pending(mask)


def test_a_loop_that_counts_compiles_little(device, metrics):
    count = torch.tensor(0).to(device)
    steps = 0
    while (count < 20).item():
        count = count + 1
        steps += 1
    assert steps == 20
    assert compilations() <= 6


def test_what_a_look_uses_can_be_overwritten(device):
    mask = torch.tensor([1, 1, 0]).to(device)
    torch_xla.sync()
    before = mask.sum()
    mask.add_(1)
    assert before.item() == 2
    torch_xla.sync()
    assert mask.tolist() == [2, 2, 1]


def test_a_full_graph_refuses_looks(device):
    mask = torch.tensor([1, 1, 0]).to(device)

    @torch_xla.compile(full_graph=True)
    def step():
        return mask.sum().item()

    with pytest.raises(RuntimeError, match="execution was turned off"):
        step()
    assert mask.sum().item() == 2


def test_a_step_that_decides_by_a_look_is_not_replayed(device):
    mask = torch.ones(3, dtype=torch.int64).to(device)
    x = torch.ones(3, device=device)

    @torch_xla.compile(replay=True)
    def step():
        return x * 2 if mask.all().item() else x * 3

    for _ in range(4):
        assert step().tolist() == [2.0] * 3
    mask[0] = 0
    assert step().tolist() == [3.0] * 3
