"""Saying how tensors lie over a mesh (imported as `xs`).

    import torch_xla.distributed.spmd as xs
    import torch_xla.runtime as xr

    xr.use_spmd()
    mesh = xs.Mesh(range(8), (2, 4), ("data", "model"))
    xs.mark_sharding(model.fc.weight, mesh, ("model", None))  # each device holds a quarter
    xs.mark_sharding(batch, mesh, ("data", None))             # and half of the batch

Programs stay those of one device. XLA works out how everything else lies, and puts in what has to
go between devices.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import nn
from torch.utils import _pytree as pytree

from torch_xla import runtime
from torch_xla._extension import _XLAC
from torch_xla._internal import custom_kernel  # noqa: F401
from torch_xla.core.xla_model import optimization_barrier_
from torch_xla.distributed.spmd.linear import (
    EinsumLinear,
    XLAPatchedLinear,
    apply_xla_patch_to_nn_linear,
    xla_patched_nn_linear_forward,
)
from torch_xla.distributed.spmd.manual import (
    annotate_manual_sharding,
    disable_manual_sharding,
    enable_manual_sharding,
    manual_all_gather,
    manual_all_reduce,
    manual_reduce_scatter,
)
from torch_xla.distributed.spmd.mesh import (
    HybridMesh,
    Mesh,
    PartitionSpec,
    get_1d_mesh,
    get_global_mesh,
    set_global_mesh,
)
from torch_xla.distributed.spmd.xla_sharded_tensor import (
    ShardingType,
    XLAShardedTensor,
    sharding_type,
)

__all__ = [
    "EinsumLinear",
    "HybridMesh",
    "MarkShardingFunction",
    "Mesh",
    "PartitionSpec",
    "PyTreeA",
    "PyTreeB",
    "ShardingSpec",
    "ShardingType",
    "XLAPatchedLinear",
    "XLAShardedTensor",
    "annotate_custom_sharding",
    "annotate_manual_sharding",
    "aot_mark_sharding_fake",
    "apply_backward_optimization_barrier",
    "apply_xla_patch_to_nn_linear",
    "clear_sharding",
    "disable_manual_sharding",
    "enable_manual_sharding",
    "get_1d_mesh",
    "get_global_mesh",
    "manual_all_gather",
    "manual_all_reduce",
    "manual_reduce_scatter",
    "mark_sharding",
    "mark_sharding_with_gradients",
    "set_global_mesh",
    "shard_as",
    "unwrap_sharded_tensor",
    "wrap_as_sharded_tensor",
    "wrap_if_sharded",
    "xla_patched_nn_linear_forward",
]

PyTreeA = TypeVar("PyTreeA")
PyTreeB = TypeVar("PyTreeB")

_mark_manual_sharding = annotate_manual_sharding


# --- One tensor ---


def _sharding_for(what: str, t: torch.Tensor, mesh: Mesh, partition_spec: PartitionSpec) -> Any:
    """The sharding that a call asks for, after the checks that all of them share."""
    if not runtime.is_spmd():
        raise RuntimeError(f"{what}: call torch_xla.runtime.use_spmd() first")
    if not isinstance(mesh, Mesh):
        raise TypeError(f"{what}: a Mesh, not {type(mesh).__name__}")
    if not isinstance(t, torch.Tensor):
        raise TypeError(f"{what}: a tensor, not {type(t).__name__}")
    if t.device.type != "xla":
        raise ValueError(f"{what}: the tensor is on {t.device}; move it to 'xla' first")
    if t.layout != torch.strided:
        raise ValueError(f"{what}: a tensor of layout {t.layout} cannot be cut")
    if torch._C._functorch.is_functorch_wrapped_tensor(t):
        raise ValueError(
            f"{what}: inside a transform of torch.func, mark_sharding_with_gradients is what cuts"
        )
    spec = partition_spec if isinstance(partition_spec, tuple | list) else (partition_spec,)
    if len(spec) != t.dim():
        raise ValueError(
            f"{what}: a partition spec has an entry for each dimension: got {partition_spec} for a "
            f"tensor of shape {tuple(t.shape)}"
        )
    return mesh.get_op_sharding(tuple(spec))


def mark_sharding(t: torch.Tensor, mesh: Mesh, partition_spec: PartitionSpec) -> XLAShardedTensor:
    """Cuts a tensor over the devices of a mesh, in place.

    It stays so through updates, whatever is written to it, and so do tensors that share its memory.
    A result in the midst of a step is cut at this point of the program.

    Args:
        t: a tensor on xla, of any shape; a dimension that does not divide has a shorter last part.
        mesh: all devices of the program.
        partition_spec: for each dimension of `t` the axis of the mesh that cuts it, by name or
            number; a tuple of axes; or None where it stays whole. Axes that are not named keep
            copies.

    Returns:
        `t` itself, with a view of its parts (`XLAShardedTensor`).

    Raises:
        RuntimeError: outside SPMD mode, or if `t` was told otherwise before (`clear_sharding`).
        ValueError: if the spec has other entries than `t` dimensions, names an axis that the mesh
            has not, or one twice; if the mesh has other devices than the program; or if a dimension
            has fewer elements than it is to have parts.
    """
    _XLAC._xla_mark_sharding(t, _sharding_for("mark_sharding", t, mesh, partition_spec))
    return wrap_as_sharded_tensor(t)


def annotate_custom_sharding(
    t: torch.Tensor, mesh: Mesh, partition_spec: PartitionSpec
) -> XLAShardedTensor:
    """The same as `mark_sharding`, for a tensor that may have been told otherwise before."""
    sharding = _sharding_for("annotate_custom_sharding", t, mesh, partition_spec)
    _XLAC._xla_annotate_custom_sharding(t, sharding)
    return wrap_as_sharded_tensor(t)


def clear_sharding(t: torch.Tensor) -> torch.Tensor:
    """Undoes `mark_sharding`, in place: the tensor lies whole on each device. Returns it, plain."""
    if not isinstance(t, torch.Tensor):
        raise TypeError(f"clear_sharding: a tensor, not {type(t).__name__}")
    if t.device.type != "xla":
        raise ValueError(f"clear_sharding: the tensor is on {t.device}, where nothing is cut")
    _XLAC._xla_clear_sharding(t)
    return unwrap_sharded_tensor(t)


class MarkShardingFunction(torch.autograd.Function):
    """A copy of a tensor that is cut as told, whose gradient is cut in the same way."""

    @staticmethod
    def forward(
        torch_tensor: torch.Tensor, mesh: Mesh, partition_spec: PartitionSpec
    ) -> torch.Tensor:
        """See `mark_sharding_with_gradients`."""
        what = "mark_sharding_with_gradients"
        sharding = _sharding_for(what, torch_tensor, mesh, partition_spec)
        return _XLAC._xla_constrain_sharding(torch_tensor, sharding)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        """Keeps how the tensor is cut."""
        _, *ctx.mesh_and_spec = inputs

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        """The gradient, cut as the tensor; it has a gradient too."""
        return MarkShardingFunction.apply(grad_output, *ctx.mesh_and_spec), None, None

    @staticmethod
    def jvp(ctx: Any, tangent: torch.Tensor, *_: Any) -> torch.Tensor:
        """The tangent, cut as the tensor."""
        return MarkShardingFunction.apply(tangent, *ctx.mesh_and_spec)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], t: torch.Tensor, mesh: Mesh, spec: PartitionSpec
    ) -> tuple[torch.Tensor, int]:
        """The batch lies whole, and each of its tensors as told."""
        each = spec if isinstance(spec, tuple | list) else (spec,)
        return MarkShardingFunction.apply(t.movedim(in_dims[0], 0), mesh, (None, *each)), 0


def mark_sharding_with_gradients(
    t: torch.Tensor, mesh: Mesh, partition_spec: PartitionSpec
) -> torch.Tensor:
    """A tensor equal to `t` that is cut as told at this point of the program, as is its gradient.

    For what a model computes on the way; `t` itself is left alone. Arguments and errors as for
    `mark_sharding`. In a function that `torch.compile` traces it is part of the graph, which
    `mark_sharding` breaks.
    """
    if torch.compiler.is_compiling():
        return torch.ops.xla.aot_mark_sharding(t, *_in_words(mesh, partition_spec))
    return MarkShardingFunction.apply(unwrap_sharded_tensor(t), mesh, partition_spec)


@torch.compiler.assume_constant_result
def _in_words(mesh: Mesh, partition_spec: PartitionSpec) -> tuple[str, str]:
    """As `torch.ops.xla.aot_mark_sharding` takes them."""
    return str(mesh), str(partition_spec)


def aot_mark_sharding_fake(t: torch.Tensor, mesh: str, partition_spec: str) -> torch.Tensor:
    """What `torch.ops.xla.aot_mark_sharding` gives for a tensor without contents."""
    return torch.empty_like(t)


def shard_as(a: PyTreeA, b: PyTreeB) -> tuple[PyTreeA, PyTreeB]:
    """Copies of two structures of tensors, where the second's lie as the first's.

    Where only a tensor of the second is known to be cut, the first's takes after it.

    Raises:
        ValueError: if the structures or shapes differ, or of two tensors neither is known to be
            cut in any way: mark one first.
    """
    leaves_a, spec_a = pytree.tree_flatten(a)
    leaves_b, spec_b = pytree.tree_flatten(b)
    if spec_a != spec_b:
        raise ValueError(f"shard_as: the structures differ: {spec_a} and {spec_b}")
    pairs = [_alike(x, y) for x, y in zip(leaves_a, leaves_b, strict=True)]
    return (
        pytree.tree_unflatten([x for x, _ in pairs], spec_a),
        pytree.tree_unflatten([y for _, y in pairs], spec_b),
    )


def _alike(x: Any, y: Any) -> tuple[Any, Any]:
    if not isinstance(x, torch.Tensor) or not isinstance(y, torch.Tensor):
        return x, y
    if x.dim() != y.dim():
        raise ValueError(f"shard_as: {x.dim()} dimensions are not cut like {y.dim()}")
    sharding = _XLAC._xla_get_sharding(x) or _XLAC._xla_get_sharding(y)
    if sharding is None:
        raise ValueError("shard_as: of neither tensor is it known how it is cut: mark one first")
    return Constrain.apply(x, sharding, sharding), Constrain.apply(y, sharding, sharding)


class Constrain(torch.autograd.Function):
    """A copy of a tensor cut as a `_XLAC.Sharding` says; its gradient as another says."""

    @staticmethod
    def forward(ctx: Any, t: torch.Tensor, sharding: Any, of_gradient: Any) -> torch.Tensor:
        """`t` has as many dimensions as the shardings."""
        ctx.sharding, ctx.of_gradient = sharding, of_gradient
        return _XLAC._xla_constrain_sharding(t, sharding)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        """The gradient, whose own gradient is cut as the tensor."""
        return Constrain.apply(grad, ctx.of_gradient, ctx.sharding), None, None


# --- Wrapping ---


def wrap_as_sharded_tensor(
    t: torch.Tensor,
    mesh_shape: tuple[int, ...] | None = None,
    partition_spec: PartitionSpec | None = None,
) -> XLAShardedTensor:
    """The tensor with a view of its parts. What it lies like it knows without being told."""
    return t if isinstance(t, XLAShardedTensor) else XLAShardedTensor(t)


def unwrap_sharded_tensor(t: torch.Tensor) -> torch.Tensor:
    """The same tensor as a plain one."""
    return t.global_tensor if isinstance(t, XLAShardedTensor) else t


def wrap_if_sharded(x: Any) -> Any:
    """`wrap_as_sharded_tensor` of a tensor that is cut; anything else as it is."""
    if (
        isinstance(x, torch.Tensor)
        and x.device.type == "xla"
        and sharding_type(x) in (ShardingType.TILED, ShardingType.PARTIAL)
    ):
        return wrap_as_sharded_tensor(x)
    return x


# --- Batches ---


@dataclass
class ShardingSpec:
    """How the batches of a loader are cut: for `MpDeviceLoader(input_sharding=...)`.

    Args:
        mesh: all devices of the program.
        partition_spec: for each dimension of a tensor the mesh axes that cut it.
        minibatch: each process loads only its own part of the batch, along the first dimension. In
            a program of one process, and so on every plugin for CPU, that is the whole batch.

    Raises:
        ValueError: as `Mesh.get_op_sharding`; or with `minibatch`, if the first dimension is not
            cut.
    """

    mesh: Mesh
    partition_spec: PartitionSpec
    minibatch: bool | None = False
    _sharding: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.mesh, Mesh):
            raise TypeError(f"ShardingSpec: a Mesh, not {type(self.mesh).__name__}")
        self.partition_spec = tuple(self.partition_spec)
        self._sharding = self.mesh.get_op_sharding(self.partition_spec)
        if self.minibatch and not (self._sharding.dims and self._sharding.dims[0]):
            raise ValueError(
                "ShardingSpec: minibatch needs a mesh axis along the first dimension, got "
                f"{self.partition_spec}"
            )

    def can_apply(self, t: torch.Tensor) -> bool:
        """Whether the tensor has as many dimensions as the spec has entries."""
        return t.dim() == len(self.partition_spec)

    def xla_spec(self, t: torch.Tensor) -> Any:
        """How `t` would be cut (`_XLAC.Sharding`); None if the spec is not for it."""
        return self._sharding if self.can_apply(t) else None

    def apply(self, t: torch.Tensor) -> None:
        """`mark_sharding` of `t`, with its errors.

        Raises:
            NotImplementedError: for `minibatch` in a program of several processes.
        """
        if self.minibatch and runtime.process_count() > 1:
            raise NotImplementedError(
                "ShardingSpec: minibatch over several processes is not supported yet"
            )
        mark_sharding(t, self.mesh, self.partition_spec)


# --- Modules ---


def apply_backward_optimization_barrier(m: nn.Module) -> nn.Module:
    """Keeps XLA from moving what backward computes in a module past the module's beginning.

    In a stack of layers whose parameters are cut, the gradients of one layer are then reduced
    before the next layer's parameters are gathered, and not all at the end. Returns the module.
    """

    m.register_full_backward_hook(_put_gradients_behind_barrier)
    return m


def _put_gradients_behind_barrier(module: nn.Module, grad_input: Any, grad_output: Any) -> None:
    grads = [p.grad for p in module.parameters() if p.grad is not None]
    grads += [grad for grad in pytree.tree_leaves(grad_input) if isinstance(grad, torch.Tensor)]
    grads = [grad for grad in grads if grad.device.type == "xla"]
    if grads:
        optimization_barrier_(grads)
