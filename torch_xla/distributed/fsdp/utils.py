"""Helpers for models whose parameters are cut over devices."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import nn

from torch_xla.distributed.spmd.linear import XLAPatchedLinear, xla_patched_nn_linear_forward
from torch_xla.utils.checkpoint import checkpoint

__all__ = ["XLAPatchedLinear", "apply_xla_patch_to_nn_linear", "checkpoint_module"]


def checkpoint_module(module: nn.Module) -> nn.Module:
    """Makes a module's backward compute its activations again instead of keeping them.

    In place; returns the module. Put it around a layer before FSDP's wrapper.

    >>> layer = checkpoint_module(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    >>> layer(torch.ones(1, 2, requires_grad=True)).sum().backward()
    """
    # Without reentrance, keyword arguments and inputs that need no gradient are fine.
    module.forward = functools.partial(checkpoint, module.forward, use_reentrant=False)
    return module


def apply_xla_patch_to_nn_linear(
    module: nn.Module,
    patched_function: Callable[[nn.Linear, torch.Tensor], torch.Tensor] = (
        xla_patched_nn_linear_forward
    ),
) -> nn.Module:
    """Gives each `nn.Linear` in a module another forward, in place; returns the module.

    Args:
        patched_function: called with the linear module and its input.
    """
    for submodule in module.modules():
        if type(submodule) is nn.Linear:
            submodule.forward = functools.partial(patched_function, submodule)
    return module
