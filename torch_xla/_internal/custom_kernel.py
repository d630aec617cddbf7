"""Operators of FX graphs that say how a tensor is cut.

`torch_xla.distributed.spmd.mark_sharding_with_gradients` calls `torch.ops.xla.aot_mark_sharding`
where Dynamo traces: meshes and partition specs go through graphs as texts. `dynamo_mark_sharding`
is the same with the mesh in parts, for programs to call.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

import torch

from torch_xla._extension import _XLAC
from torch_xla.core.xla_model import XLA_LIB

__all__ = ["aot_mark_sharding", "dynamo_mark_sharding", "dynamo_mark_sharding_xla"]


def aot_mark_sharding(t: torch.Tensor, mesh: str, partition_spec: str) -> torch.Tensor:
    """A tensor equal to `t`, cut as told at this place of the program, as is its gradient.

    Args:
        t: on xla.
        mesh: text of a `Mesh` (`str(mesh)`).
        partition_spec: text of a partition spec, such as "('data', None)".

    Raises:
        RuntimeError: outside SPMD mode.
        ValueError: for texts that are none, and as `mark_sharding`.
    """
    from torch_xla.distributed.spmd import xla_sharding
    from torch_xla.distributed.spmd.mesh import Mesh

    spec = _literal("partition spec", partition_spec)
    sharding = xla_sharding._sharding_for("aot_mark_sharding", t, Mesh.from_str(mesh), spec)
    return _XLAC._xla_constrain_sharding(t, sharding)


def dynamo_mark_sharding_xla(
    input: torch.Tensor,
    device_ids: Sequence[int],
    mesh_shape: Sequence[int],
    axis_names: str,
    partition_spec: str,
) -> torch.Tensor:
    """The same as `aot_mark_sharding`.

    Args:
        input: on xla.
        device_ids: of the mesh, as in `Mesh`.
        mesh_shape: of the mesh.
        axis_names: text of the tuple of its axes' names, or "None".
        partition_spec: text of the partition spec.
    """
    content = {
        "device_ids": list(device_ids),
        "mesh_shape": tuple(mesh_shape),
        "axis_names": _literal("tuple of axis names", axis_names),
    }
    return aot_mark_sharding(input, str(content), partition_spec)


def dynamo_mark_sharding(
    input: torch.Tensor,
    device_ids: Sequence[int],
    mesh_shape: Sequence[int],
    axis_names: str,
    partition_spec: str,
) -> torch.Tensor:
    """The same on other devices, where it says nothing: a copy of `input`."""
    return input.clone()


def _literal(what: str, text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"no text of a {what}: {text!r}") from error


def _define(signature: str, on_xla: Any, elsewhere: Any) -> None:
    """An operator whose gradient goes through itself."""
    XLA_LIB.define(signature)
    name = signature.partition("(")[0]
    XLA_LIB.impl(name, on_xla, "XLA")
    XLA_LIB.impl(name, elsewhere, "CompositeExplicitAutograd")

    def remember(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        ctx.words = inputs[1:]

    def cut_gradient(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        cut = getattr(torch.ops.xla, name)(grad, *ctx.words)
        return cut, *([None] * len(ctx.words))

    torch.library.register_autograd(
        f"xla::{name}", cut_gradient, setup_context=remember, lib=XLA_LIB
    )


_define(
    "aot_mark_sharding(Tensor t, str mesh, str partition_spec) -> Tensor",
    aot_mark_sharding,
    lambda t, mesh, partition_spec: t.clone(),
)
_define(
    "dynamo_mark_sharding(Tensor input, int[] device_ids, int[] mesh_shape, str axis_names, "
    "str partition_spec) -> Tensor",
    dynamo_mark_sharding_xla,
    dynamo_mark_sharding,
)
