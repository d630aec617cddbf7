"""Collectives that autograd knows (imported as `xf`)."""

from __future__ import annotations

from typing import Any

import torch

from torch_xla.core import xla_model as xm


class AllReduce(torch.autograd.Function):
    """Reduces over the replicas; so does its gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        input: torch.Tensor,
        reduce_type: str,
        scale: float,
        groups: list[list[int]] | None,
    ) -> torch.Tensor:
        ctx.arguments = (reduce_type, scale, groups)
        return xm.all_reduce(reduce_type, input, scale, groups)

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        reduce_type, scale, groups = ctx.arguments
        return AllReduce.apply(grad_output, reduce_type, scale, groups), None, None, None


class AllGather(torch.autograd.Function):
    """Concatenates over the replicas; its gradient is this replica's part of the sum."""

    @staticmethod
    def forward(ctx: Any, input: torch.Tensor, dim: int) -> torch.Tensor:
        ctx.dim, ctx.size = dim, input.size(dim)
        return xm.all_gather(input, dim)

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        total = AllReduce.apply(grad_output, xm.REDUCE_SUM, 1.0, None)
        return total.narrow(ctx.dim, xm.get_ordinal() * ctx.size, ctx.size), None


def all_reduce(
    reduce_type: str,
    value: torch.Tensor,
    scale: float = 1.0,
    groups: list[list[int]] | None = None,
) -> torch.Tensor:
    """`torch_xla.core.xla_model.all_reduce` of one tensor, with a gradient."""
    return AllReduce.apply(value, reduce_type, scale, groups)


def all_gather(value: torch.Tensor, dim: int = 0) -> torch.Tensor:
    """`torch_xla.core.xla_model.all_gather` of one tensor, with a gradient."""
    return AllGather.apply(value, dim)
