"""Runs a case of the zoo step by step on a device, and compares two runs."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable, Iterable

import torch
from zoo import CASES, Case

import torch_xla
import torch_xla.debug.metrics as met

MakeOptimizer = Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer]


def adamw(parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """AdamW whose epsilon is above the rounding noise of gradients that are zero on paper.

    Attention does not depend on the bias of its keys, nor a normalized convolution on its own
    bias. With the usual 1e-8 Adam divides such noise by itself: steps of size lr, either way.
    """
    return torch.optim.AdamW(parameters, lr=1e-3, eps=1e-5)


@dataclasses.dataclass
class Run:
    """What training left behind, all on CPU."""

    losses: list[float]
    state: dict[str, torch.Tensor]  # parameters and buffers


def compile_count() -> int:
    data = met.metric_data("CompileTime")
    return data[0] if data else 0


def train(
    case: Case,
    device: torch.device | str,
    *,
    steps: int = 5,
    optimizer: MakeOptimizer = adamw,
    dtype: torch.dtype = torch.float32,
    schedule: Callable[[torch.optim.Optimizer], object] | None = None,
) -> Run:
    """Trains a copy of the case's model for `steps` on its one batch."""
    model = copy.deepcopy(case.model).to(dtype).to(device)
    batch = {
        name: (tensor.to(dtype) if tensor.is_floating_point() else tensor).to(device)
        for name, tensor in case.batch.items()
    }
    stepper = optimizer(model.parameters())
    scheduler = schedule(stepper) if schedule else None
    losses = []
    for _ in range(steps):
        stepper.zero_grad()
        loss = case.loss(model, batch)
        loss.backward()
        stepper.step()
        if scheduler:
            scheduler.step()
        if torch.device(device).type == "xla":
            torch_xla.sync()
        losses.append(loss.detach())
    state = {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}
    return Run([loss.item() for loss in losses], state)


@functools.cache
def trained_on_cpu(name: str, dtype: torch.dtype) -> Run:
    """What `train` leaves behind of a case on CPU, whose model is that of seed 0."""
    torch.manual_seed(0)
    return train(CASES[name](), "cpu", dtype=dtype)


def assert_same(
    got: Run, expected: Run, *, rtol: float, atol: float, exact: Run | None = None
) -> None:
    """Every loss, parameter and buffer agrees.

    `atol` is relative to a tensor's largest element, or to 0.1 where all are smaller. `exact` is
    the same run as `expected` with wider numbers: as far as that one is off, both may be.
    """
    # transformers compute their losses in f32 whatever the model's dtype.
    torch.testing.assert_close(
        torch.tensor(got.losses, dtype=torch.float64),
        torch.tensor(expected.losses, dtype=torch.float64),
        rtol=max(rtol, 1e-6),
        atol=0,
    )
    assert list(got.state) == list(expected.state)
    for name, want in expected.state.items():
        allowed = 0.0
        if want.is_floating_point() and want.numel():
            allowed = atol * max(want.abs().max().item(), 0.1)
            if exact is not None:
                allowed += 2 * (want - exact.state[name]).abs().max().item()
        torch.testing.assert_close(
            got.state[name],
            want,
            rtol=rtol,
            atol=allowed,
            msg=lambda text, name=name: f"{name}: {text}",
        )
