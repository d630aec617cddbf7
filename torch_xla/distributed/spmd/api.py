"""`torch.distributed.tensor` over SPMD mode: its meshes and placements said in ours.

torch calls `xla_distribute_tensor` and `xla_distribute_module` itself where a `DeviceMesh` is one
of "xla": programs use `torch.distributed.tensor.distribute_tensor`, `distribute_module` and
`torch.distributed.tensor.parallel.parallelize_module`, on part of a mesh too.

One process sees whole tensors only. What torch calls local is therefore whole here: `to_local()`
changes no shape, and `DTensor.from_local(x, mesh, placements)` says how the whole `x` is cut.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from torch_xla import runtime
from torch_xla.distributed.spmd.mesh import Mesh, MeshAxes, PartitionSpec, get_global_mesh
from torch_xla.distributed.spmd.xla_sharded_tensor import (
    ShardingType,
    XLAShardedTensor,
    sharding_type,
)
from torch_xla.distributed.spmd.xla_sharding import mark_sharding, mark_sharding_with_gradients

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor.placement_types import Placement

    AnyMesh = DeviceMesh | Mesh | MeshAxes

__all__ = [
    "auto_policy",
    "convert_to_xla_mesh",
    "convert_to_xla_partition_spec",
    "with_xla",
    "xla_distribute_module",
    "xla_distribute_tensor",
]

# Parameters with fewer elements stay whole: cutting them saves nothing and costs a transfer each.
_AUTO_POLICY_MIN_ELEMENTS = 1024


def with_xla(func: Callable[..., Any]) -> Callable[..., Any]:
    """A function that wants SPMD mode: calling it outside raises RuntimeError."""

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not runtime.is_spmd():
            raise RuntimeError(f"{func.__name__}: call torch_xla.runtime.use_spmd() first")
        return func(*args, **kwargs)

    return wrapper


def convert_to_xla_mesh(dt_mesh: AnyMesh) -> Mesh:
    """A mesh of torch as one of ours; of some axes of ours, the whole mesh.

    Raises:
        ValueError: if it is not of "xla", or does not have all devices of the program.
    """
    if isinstance(dt_mesh, Mesh):
        return dt_mesh
    if isinstance(dt_mesh, MeshAxes):
        return dt_mesh.whole
    if not hasattr(dt_mesh, "device_type"):
        raise TypeError(f"a mesh is needed, not {type(dt_mesh).__name__}")
    if dt_mesh.device_type != "xla":
        raise ValueError(f"a mesh of {dt_mesh.device_type!r} devices where one of 'xla' is needed")
    count = runtime.global_runtime_device_count()
    ids = dt_mesh.mesh
    if ids.numel() != count:
        raise ValueError(f"a mesh of {ids.numel()} devices, while programs run on all {count}")
    return Mesh(ids.reshape(-1).tolist(), tuple(ids.shape), dt_mesh.mesh_dim_names)


def convert_to_xla_partition_spec(
    tensor: torch.Tensor, placements: Sequence[Placement]
) -> PartitionSpec:
    """Placements of torch as a partition spec, by the numbers of the mesh's axes.

    Args:
        tensor: whose dimensions the placements speak of.
        placements: `Shard` or `Replicate`, one for each axis of the mesh.

    Raises:
        ValueError: for other placements, and dimensions that the tensor has not.

    >>> from torch.distributed.tensor import Replicate, Shard
    >>> convert_to_xla_partition_spec(torch.ones(4, 6), [Replicate(), Shard(-1)])
    (None, 1)
    """
    from torch.distributed.tensor import Replicate, Shard

    axes: list[list[int]] = [[] for _ in range(tensor.dim())]
    for axis, placement in enumerate(placements):
        if isinstance(placement, Replicate):
            continue
        if type(placement) is not Shard:
            raise ValueError(
                f"placement {placement} of mesh axis {axis}: a tensor in SPMD mode is cut (Shard) "
                "or whole (Replicate) along an axis"
            )
        if not -tensor.dim() <= placement.dim < tensor.dim():
            raise ValueError(
                f"placement {placement}: a tensor of shape {tuple(tensor.shape)} has no such "
                "dimension"
            )
        axes[placement.dim].append(axis)
    return tuple(None if not a else a[0] if len(a) == 1 else tuple(a) for a in axes)


def spec_over(
    what: str, tensor: torch.Tensor, device_mesh: AnyMesh, placements: Sequence[Placement]
) -> tuple[Mesh, PartitionSpec]:
    """Placements along the axes that are meant as a partition spec of the whole mesh."""
    mesh = convert_to_xla_mesh(device_mesh)
    axes = device_mesh.axes if isinstance(device_mesh, MeshAxes) else range(len(mesh.mesh_shape))
    if not isinstance(placements, Sequence):
        raise TypeError(
            f"{what}: a placement for each axis of the mesh, in a sequence; got {placements!r}"
        )
    if len(placements) != len(axes):
        raise ValueError(f"{what}: {len(placements)} placements for a mesh of {len(axes)} axes")
    spec = convert_to_xla_partition_spec(tensor, placements)

    def of_mesh(entry: Any) -> Any:
        if isinstance(entry, tuple):
            return tuple(axes[i] for i in entry)
        return None if entry is None else axes[entry]

    return mesh, tuple(of_mesh(entry) for entry in spec)


def _mesh_or_default(what: str, device_mesh: AnyMesh | None) -> AnyMesh:
    mesh = device_mesh if device_mesh is not None else get_global_mesh()
    if mesh is None:
        raise ValueError(f"{what}: give a mesh, or set one by set_global_mesh")
    return mesh


@with_xla
def xla_distribute_tensor(
    tensor: torch.Tensor,
    device_mesh: AnyMesh | None = None,
    placements: Sequence[Placement] | None = None,
) -> XLAShardedTensor:
    """A tensor cut over a mesh; see `torch.distributed.tensor.distribute_tensor`.

    Args:
        tensor: a leaf, on xla or to be moved there. One on xla is cut in place: the result shares
            its memory, though not its gradient.
        device_mesh: of all devices, or some axes of one (`mesh["model"]`); by default the global
            mesh.
        placements: one for each axis of the mesh; by default copies everywhere.

    Raises:
        RuntimeError: outside SPMD mode, and for a tensor that is no leaf.
        ValueError: as `convert_to_xla_partition_spec` and `mark_sharding`.
    """
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"xla_distribute_tensor: a tensor, not {type(tensor).__name__}")
    from torch.distributed.tensor import DTensor

    if isinstance(tensor, DTensor):
        raise ValueError(
            f"xla_distribute_tensor: a plain tensor, not a DTensor over {tensor.device_mesh}: take "
            "its full_tensor()"
        )
    if not tensor.is_leaf:
        raise RuntimeError("xla_distribute_tensor: it takes leaves, and the tensor is no leaf")
    what = "xla_distribute_tensor"
    device_mesh = _mesh_or_default(what, device_mesh)
    if placements is None:
        mesh, spec = convert_to_xla_mesh(device_mesh), (None,) * tensor.dim()
    else:
        mesh, spec = spec_over(what, tensor, device_mesh, placements)
    moved = tensor.detach().to("xla")
    return mark_sharding(moved, mesh, spec).requires_grad_(tensor.requires_grad)


# --- Activations ---


class XLAActivation(XLAShardedTensor):
    """What goes from layer to layer, in the words of `DTensor`.

    What operators make of it are plain tensors, which XLA cuts as it sees fit.
    """

    _along: AnyMesh | None = None  # the mesh, or its axes, that placements are said along
    _placements: tuple[Placement, ...] = ()

    @property
    def device_mesh(self) -> AnyMesh:
        """The mesh along which it was told how it lies.

        Raises:
            ValueError: if it never was.
        """
        if self._along is None:
            raise ValueError("the tensor was made by operators: nobody told how it lies")
        return self._along

    @property
    def placements(self) -> tuple[Placement, ...]:
        """As told along `device_mesh`; empty for what operators made."""
        return self._placements

    def redistribute(
        self,
        device_mesh: AnyMesh | None = None,
        placements: Sequence[Placement] | None = None,
        **_: Any,
    ) -> XLAActivation:
        """A tensor equal to this one that lies as told at this place of the program, as does its
        gradient. See `torch.distributed.tensor.DTensor.redistribute`, whose further arguments mean
        nothing here.

        Raises:
            ValueError: as `convert_to_xla_partition_spec` and `mark_sharding`.
        """
        if placements is None:
            raise ValueError("redistribute: placements are missing")
        return _activation(self.global_tensor, device_mesh or self.device_mesh, placements)


def _activation(
    tensor: torch.Tensor, along: AnyMesh, placements: Sequence[Placement]
) -> XLAActivation:
    mesh, spec = spec_over("DTensor", tensor, along, placements)
    cut = mark_sharding_with_gradients(tensor, mesh, spec).as_subclass(XLAActivation)
    cut._along, cut._placements = along, tuple(placements)
    return cut


def _as_activations(outputs: Any, along: AnyMesh) -> Any:
    def as_activation(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.device.type != "xla":
            return value
        activation = value.as_subclass(XLAActivation)
        activation._along = along
        return activation

    return pytree.tree_map(as_activation, outputs)


def from_local(tensor: torch.Tensor, along: AnyMesh, placements: Any = None) -> torch.Tensor:
    """`DTensor.from_local` over xla: `tensor` is whole, and so is what comes of it."""
    if isinstance(tensor, XLAActivation):
        return tensor
    if placements is None:
        from torch.distributed.tensor import Replicate

        placements = [Replicate()] * along.ndim
    if isinstance(tensor, nn.Parameter):
        return xla_distribute_tensor(tensor, along, placements)
    return _activation(tensor, along, placements)


# --- Modules ---


def auto_policy(mod_name: str, mod: nn.Module, mesh: AnyMesh) -> None:
    """A `partition_fn` that cuts a module's own parameters over all devices.

    Each is cut along its largest dimension that divides by the number of devices. Small ones, and
    those without such a dimension, stay whole. This is what FSDP does to parameters: every device
    computes everything, on its part of the batch.
    """
    xla_mesh = convert_to_xla_mesh(mesh)
    all_axes = tuple(range(len(xla_mesh.mesh_shape)))
    for parameter in mod.parameters(recurse=False):
        dividing = [d for d, n in enumerate(parameter.shape) if n and n % xla_mesh.size() == 0]
        if not dividing or math.prod(parameter.shape) < _AUTO_POLICY_MIN_ELEMENTS:
            continue
        cut = max(dividing, key=lambda d: parameter.shape[d])
        spec = [None] * parameter.dim()
        spec[cut] = all_axes
        mark_sharding(parameter, xla_mesh, tuple(spec))


@with_xla
def xla_distribute_module(
    module: nn.Module,
    device_mesh: AnyMesh | None = None,
    partition_fn: Callable[[str, nn.Module, Any], None] | None = None,
    input_fn: Callable[..., Any] | None = None,
    output_fn: Callable[..., Any] | None = None,
) -> nn.Module:
    """A module whose parameters lie over a mesh; see `torch.distributed.tensor.distribute_module`.

    Args:
        module: it is moved to xla.
        device_mesh: of all devices, or some axes of one; by default the global mesh.
        partition_fn: called with the name of each submodule, the submodule and the mesh, to cut
            what is in it: by `mark_sharding` in place, or by registering new parameters
            (`xla_distribute_tensor`). `auto_policy` is one. What it leaves alone, and by default
            everything, is whole on each device.
        input_fn: called before each forward with the module, its inputs and the mesh; what it
            returns, unless None, replaces the inputs.
        output_fn: the same after each forward, for the outputs; its tensors can be told by
            `redistribute` how to lie.

    Returns:
        the module.

    Raises:
        RuntimeError: outside SPMD mode.
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"xla_distribute_module: a module, not {type(module).__name__}")
    mesh = _mesh_or_default("xla_distribute_module", device_mesh)
    xla_mesh = convert_to_xla_mesh(mesh)
    module.to("xla")
    if partition_fn is not None:
        for name, submodule in module.named_modules():
            partition_fn(name, submodule, mesh)
    for tensor in [*module.parameters(), *module.buffers()]:
        if sharding_type(tensor) == ShardingType.UNKNOWN:
            mark_sharding(tensor, xla_mesh, (None,) * tensor.dim())
    # Dynamo takes a mesh of torch for one that has a process group, and fails.
    if input_fn is not None:
        module.register_forward_pre_hook(
            torch.compiler.disable(lambda m, inputs: input_fn(m, inputs, mesh))
        )
    if output_fn is not None:
        module.register_forward_hook(
            torch.compiler.disable(
                lambda m, inputs, outputs: output_fn(m, _as_activations(outputs, mesh), mesh)
            )
        )
    return module
