"""Linear layers written so that every dimension of the input stays one of its own.

`torch.nn.functional.linear` on xla does not merge dimensions either: these are for programs written
for torch_xla of old, and for weights that are made on other devices first.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

__all__ = [
    "EinsumLinear",
    "XLAPatchedLinear",
    "apply_xla_patch_to_nn_linear",
    "xla_patched_nn_linear_forward",
]


class XLAPatchedLinear(torch.autograd.Function):
    """`F.linear` with gradients that contract over all leading dimensions at once.

    input [..., in], weight [out, in], bias [out] or None; gives [..., out]. As `F.linear`, it
    follows autocast.
    """

    @staticmethod
    def forward(
        ctx: Any, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """See `F.linear`."""
        ctx.save_for_backward(input, weight)
        return F.linear(input, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Of input, weight and bias, as far as they are wanted."""
        # Under autocast the product is of another dtype than its factors.
        input, weight = (saved.to(grad_output.dtype) for saved in ctx.saved_tensors)
        wanted = [*ctx.needs_input_grad, False][:3]
        if grad_output.device.type == "xla":
            grads = torch.ops.aten.linear_backward(input, grad_output, weight, wanted)
            return tuple(g if want else None for g, want in zip(grads, wanted, strict=True))
        leading = list(range(grad_output.dim() - 1))
        return (
            grad_output @ weight if wanted[0] else None,
            torch.tensordot(grad_output, input, (leading, leading)) if wanted[1] else None,
            grad_output.sum(leading) if wanted[2] else None,
        )


def xla_patched_nn_linear_forward(m: nn.Linear, input: torch.Tensor) -> torch.Tensor:
    """The forward of `nn.Linear`, through `XLAPatchedLinear`."""
    return XLAPatchedLinear.apply(input, m.weight, m.bias)


class EinsumLinear(nn.Linear):
    """An `nn.Linear` whose forward is `XLAPatchedLinear`; takes the same arguments and state.

    >>> EinsumLinear(3, 2)(torch.ones(4, 5, 3)).shape
    torch.Size([4, 5, 2])
    """

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """input [..., in_features] to [..., out_features]."""
        return xla_patched_nn_linear_forward(self, input)


def apply_xla_patch_to_nn_linear(module: nn.Module) -> nn.Module:
    """Makes each `nn.Linear` in a module an `EinsumLinear`, in place; returns the module.

    Subclasses of `nn.Linear` stay as they are: their forward is their own.
    """
    for submodule in module.modules():
        if type(submodule) is nn.Linear:
            submodule.__class__ = EinsumLinear
    return module
