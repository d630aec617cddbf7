"""Activation checkpointing under the name it has in this package.

`torch.utils.checkpoint` works on xla tensors as it stands: random states are restored through
`torch.xla`. What it computes again is put behind a barrier, without which XLA would notice that it
has these values already, keep them, and save no memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.utils.checkpoint as torch_checkpoint

from torch_xla.core.xla_model import optimization_barrier_


class _Barrier(torch.autograd.Function):
    """Passes tensors through; computations of later uses cannot be merged with earlier ones."""

    @staticmethod
    def forward(ctx: Any, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        copies = tuple(tensor.detach().clone() for tensor in tensors)
        optimization_barrier_([copy for copy in copies if copy.device.type == "xla"])
        return copies

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return grads


def checkpoint(
    function: Callable[..., Any], *args: Any, use_reentrant: bool = True, **kwargs: Any
) -> Any:
    """Calls `function(*args)` without keeping what is inside for backward; see
    `torch.utils.checkpoint.checkpoint`, whose arguments these are."""

    def behind_barrier(*inner: Any, **inner_kwargs: Any) -> Any:
        positions = [
            i
            for i, value in enumerate(inner)
            if isinstance(value, torch.Tensor) and value.device.type == "xla"
        ]
        values = list(inner)
        if positions:
            passed = _Barrier.apply(*(inner[i] for i in positions))
            for i, value in zip(positions, passed, strict=True):
                values[i] = value
        return function(*values, **inner_kwargs)

    return torch_checkpoint.checkpoint(behind_barrier, *args, use_reentrant=use_reentrant, **kwargs)
