"""Undoing an optimizer's step on the device."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


def _tensors(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    """Everything that a step may change: parameters and state."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            yield parameter
            for value in optimizer.state.get(parameter, {}).values():
                if isinstance(value, torch.Tensor):
                    yield value


@contextlib.contextmanager
def keep_if(optimizer: torch.optim.Optimizer, condition: torch.Tensor) -> Iterator[None]:
    """Where `condition` (a bool of rank 0) holds, what the block changed is as before it.

    State that the block makes anew is zero then, as it would be at the next first step.
    """
    with torch.no_grad():
        before = {id(tensor): tensor.detach().clone() for tensor in _tensors(optimizer)}
    yield
    with torch.no_grad():
        for tensor in _tensors(optimizer):
            old = before.get(id(tensor))
            if old is None:
                old = torch.zeros_like(tensor)
            tensor.copy_(torch.where(condition.to(tensor.device), old, tensor))


def on_device_steps(optimizer: torch.optim.Optimizer) -> None:
    """Step counts become tensors of the device, so that a step thrown away does not count."""
    for group in optimizer.param_groups:
        if "capturable" in group and any(p.device.type == "xla" for p in group["params"]):
            group["capturable"] = True
