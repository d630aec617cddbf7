"""Parts of a program that are written for one device, in SPMD mode.

Between `enable_manual_sharding` and `disable_manual_sharding` a tensor is what one device holds of
a whole: the program's shapes are those of the pieces, each device computes with its own, and XLA
puts in no transfers. Those that the algorithm needs it says itself.

    x = xs.enable_manual_sharding(tokens, ("data", None), mesh)      # [batch / data, width]
    x = xs.manual_all_reduce(x, "data", mesh)                        # its own transfers
    y = xs.disable_manual_sharding(x, (None, None), x.shape, mesh)   # whole again

Everything that a part uses has to be brought into it, also what is the same on each device (cut by
nothing: `(None, None)`); numbers, and tensors made of them, need not be. A piece that is read on
the host is that of the first device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from torch_xla import runtime
from torch_xla._extension import _XLAC
from torch_xla.distributed.spmd.mesh import Mesh, PartitionSpec, get_global_mesh
from torch_xla.distributed.spmd.xla_sharded_tensor import XLAShardedTensor

__all__ = [
    "annotate_manual_sharding",
    "disable_manual_sharding",
    "enable_manual_sharding",
    "manual_all_gather",
    "manual_all_reduce",
    "manual_reduce_scatter",
]

Axes = str | int | Sequence[str | int]


def _mesh_for(what: str, t: torch.Tensor, mesh: Mesh | None) -> Mesh:
    """The mesh that is meant, after the checks that all of these functions share."""
    if not runtime.is_spmd():
        raise RuntimeError(f"{what}: call torch_xla.runtime.use_spmd() first")
    mesh = mesh if mesh is not None else get_global_mesh()
    if mesh is None:
        raise ValueError(f"{what}: give a mesh, or set one by set_global_mesh")
    if not isinstance(mesh, Mesh):
        raise TypeError(f"{what}: a Mesh, not {type(mesh).__name__}")
    if t.device.type != "xla":
        raise ValueError(f"{what}: the tensor is on {t.device}; move it to 'xla' first")
    if mesh.size() != runtime.global_runtime_device_count():
        raise ValueError(
            f"{what}: a mesh of {mesh.size()} devices, while programs run on "
            f"{runtime.global_runtime_device_count()}"
        )
    return mesh


def _plain(t: torch.Tensor) -> torch.Tensor:
    return t.global_tensor if isinstance(t, XLAShardedTensor) else t


def _groups(mesh: Mesh, axes: Sequence[int]) -> list[list[int]]:
    """Devices that differ only along `axes`, group by group."""
    rest = [axis for axis in range(len(mesh.mesh_shape)) if axis not in axes]
    grid = mesh.get_logical_mesh().transpose([*rest, *axes])
    return grid.reshape(-1, int(np.prod([mesh.mesh_shape[a] for a in axes]))).tolist()


def _groups_along(what: str, mesh: Mesh, axes: Axes) -> list[list[int]]:
    names = (axes,) if isinstance(axes, str | int) else tuple(axes)
    try:
        (cut,) = mesh.get_op_sharding((names,)).dims
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None
    return _groups(mesh, [axis for axis, _, _ in cut])


def _groups_of_copies(sharding: Any) -> list[list[int]]:
    """Devices that hold the same part, part by part."""
    holders: dict[int, list[int]] = {}
    for device, tile in enumerate(sharding.tile_of):
        holders.setdefault(tile, []).append(device)
    return list(holders.values())


class _Enter(torch.autograd.Function):
    """To pieces. A whole that several devices have a copy of gets all their gradients."""

    @staticmethod
    def forward(ctx: Any, t: torch.Tensor, sharding: Any) -> torch.Tensor:
        ctx.sharding, ctx.shape = sharding, list(t.shape)
        return _XLAC._spmd_full_to_shard_shape(t, sharding)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        total = _AllReduce.apply(grad, _groups_of_copies(ctx.sharding), "sum")
        return _Leave.apply(total, ctx.sharding, ctx.shape), None


class _Leave(torch.autograd.Function):
    """From pieces. Devices that have the same piece share its gradient."""

    @staticmethod
    def forward(ctx: Any, t: torch.Tensor, sharding: Any, shape: list[int]) -> torch.Tensor:
        ctx.sharding = sharding
        return _XLAC._spmd_shard_to_full_shape(t, sharding, shape, t.dtype)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        piece = _Enter.apply(grad, ctx.sharding)
        copies = len(_groups_of_copies(ctx.sharding)[0])
        return (piece if copies == 1 else piece / copies), None, None


class _AllReduce(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, t: torch.Tensor, groups: list[list[int]], reduce_type: str
    ) -> torch.Tensor:
        ctx.groups, ctx.reduce_type = groups, reduce_type
        return _XLAC._xla_spmd_all_reduce(reduce_type, t, 1.0, groups)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        _check_sum("manual_all_reduce", ctx.reduce_type)
        return _AllReduce.apply(grad, ctx.groups, "sum"), None, None


class _ReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, t: torch.Tensor, groups: list[list[int]], reduce_type: str, dim: int
    ) -> torch.Tensor:
        ctx.groups, ctx.reduce_type, ctx.dim = groups, reduce_type, dim
        return _XLAC._xla_spmd_reduce_scatter(reduce_type, t, 1.0, dim, len(groups[0]), groups)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        _check_sum("manual_reduce_scatter", ctx.reduce_type)
        return _AllGather.apply(grad, ctx.groups, ctx.dim), None, None, None


class _AllGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, t: torch.Tensor, groups: list[list[int]], dim: int) -> torch.Tensor:
        ctx.groups, ctx.dim = groups, dim
        return _XLAC._xla_spmd_all_gather(t, dim, groups)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return _ReduceScatter.apply(grad, ctx.groups, "sum", ctx.dim), None, None


def _check_sum(what: str, reduce_type: str) -> None:
    if reduce_type != "sum":
        raise RuntimeError(f"{what}: {reduce_type!r} has no gradient; 'sum' has")


def enable_manual_sharding(
    t: torch.Tensor, partition_spec: PartitionSpec, mesh: Mesh | None = None
) -> XLAShardedTensor:
    """Begins a part of the program that is written for one device.

    The gradient of `t` is whole again: cut as `t`, and summed over devices that have copies.

    Args:
        t: a whole tensor on xla, which is left alone. It is brought to lie as told.
        partition_spec: as for `mark_sharding`. Dimensions must divide by what cuts them.
        mesh: all devices of the program; by default the global mesh. All parts of one program are
            over one mesh.

    Returns:
        The device's piece: a tensor of its shape, with another value on each device.

    Raises:
        RuntimeError: outside SPMD mode.
        ValueError: as `mark_sharding`; for a dimension that does not divide; without any mesh. What
            is a piece already, or meets a whole tensor in an operator, is an error of the program
            that names the line, when it runs.
    """
    mesh = _mesh_for("enable_manual_sharding", t, mesh)
    piece = _Enter.apply(_plain(t), mesh.get_op_sharding(_entries(partition_spec)))
    return XLAShardedTensor(piece)


def disable_manual_sharding(
    t: torch.Tensor,
    partition_spec: PartitionSpec,
    full_shape: Sequence[int],
    mesh: Mesh | None = None,
) -> XLAShardedTensor:
    """Ends such a part.

    Along axes that the spec does not name, all devices must have the same piece (after a
    `manual_all_reduce`, say); nobody checks. The gradient of `t` is the device's piece of that of
    the result, of which devices with the same piece have equal shares.

    Args:
        t: a piece: what `enable_manual_sharding` gave, or what was computed from it.
        partition_spec: how the result lies.
        full_shape: of the result: what all pieces make together.
        mesh: as for `enable_manual_sharding`.

    Returns:
        The whole tensor.

    Raises:
        RuntimeError: outside SPMD mode.
        ValueError: as `mark_sharding`, and for another shape than that of all pieces.
    """
    mesh = _mesh_for("disable_manual_sharding", t, mesh)
    sharding = mesh.get_op_sharding(_entries(partition_spec))
    return XLAShardedTensor(_Leave.apply(_plain(t), sharding, list(full_shape)))


def annotate_manual_sharding(t: torch.Tensor) -> XLAShardedTensor:
    """Makes `t` a device's piece, in place: all devices begin with its value as it is.

    Raises:
        RuntimeError: outside SPMD mode.
    """
    _XLAC._mark_manual_sharding(_plain(t))
    return t if isinstance(t, XLAShardedTensor) else XLAShardedTensor(t)


def manual_all_reduce(
    t: torch.Tensor, axes: Axes, mesh: Mesh | None = None, reduce_type: str = "sum"
) -> torch.Tensor:
    """Combines a piece with those of the devices along some axes, element by element.

    Args:
        t: of numbers; it is left alone.
        axes: of the mesh, one or several.
        mesh: by default the global mesh.
        reduce_type: "sum", "mul", "min" or "max"; only "sum" has a gradient.

    Raises:
        RuntimeError: outside SPMD mode.
        ValueError: for axes that the mesh has not, and another `reduce_type`.
    """
    mesh = _mesh_for("manual_all_reduce", t, mesh)
    groups = _groups_along("manual_all_reduce", mesh, axes)
    return _AllReduce.apply(_plain(t), groups, reduce_type)


def manual_reduce_scatter(
    t: torch.Tensor, axes: Axes, dim: int, mesh: Mesh | None = None, reduce_type: str = "sum"
) -> torch.Tensor:
    """The same, of whose result each device keeps its share along `dim`, in the order of the axes.

    Raises:
        RuntimeError: outside SPMD mode.
        ValueError: as `manual_all_reduce`; for a dimension that the devices do not divide.
    """
    mesh = _mesh_for("manual_reduce_scatter", t, mesh)
    groups = _groups_along("manual_reduce_scatter", mesh, axes)
    return _ReduceScatter.apply(_plain(t), groups, reduce_type, dim)


def manual_all_gather(
    t: torch.Tensor, axes: Axes, dim: int, mesh: Mesh | None = None
) -> torch.Tensor:
    """The pieces of the devices along some axes, one behind the other along `dim`.

    Raises:
        RuntimeError: outside SPMD mode.
        ValueError: for axes that the mesh has not.
    """
    mesh = _mesh_for("manual_all_gather", t, mesh)
    groups = _groups_along("manual_all_gather", mesh, axes)
    return _AllGather.apply(_plain(t), groups, dim)


def _entries(partition_spec: PartitionSpec) -> PartitionSpec:
    return partition_spec if isinstance(partition_spec, tuple) else (partition_spec,)
