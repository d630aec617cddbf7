"""FSDP in SPMD mode: every device has its part of the parameters and of the batch.

    xr.use_spmd()
    n = xr.global_runtime_device_count()
    xs.set_global_mesh(xs.Mesh(range(n), (n, 1), ("fsdp", "model")))
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
    model = SpmdFullyShardedDataParallel(model, auto_wrap_policy=policy)

XLA gathers a layer's parameters where they are used and reduces their gradients to the parts again
(Rajbhandari et al. 2020, ZeRO stage 3). Optimizers made of the model's parameters have states that
are cut like these.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from torch_xla._extension import _XLAC
from torch_xla.distributed.fsdp.wrap import recursive_wrap
from torch_xla.distributed.spmd.mesh import Mesh, PartitionSpec, get_global_mesh
from torch_xla.distributed.spmd.xla_sharded_tensor import ShardingType, sharding_type
from torch_xla.distributed.spmd.xla_sharding import (
    apply_backward_optimization_barrier,
    mark_sharding,
)

__all__ = ["SpmdFullyShardedDataParallel"]

_AXIS = "fsdp"
_PREFIX = "_orig_module."


class SpmdFullyShardedDataParallel(nn.Module):
    """A module whose parameters are cut over the axis 'fsdp' of a mesh.

    Each parameter is cut along its largest dimension that divides by the axis' size, else along its
    largest that has enough elements; parameters too small for that, and those that are cut already
    (by `mark_sharding`, for tensor parallelism say) stay as they are. `state_dict` has the names of
    the wrapped module.

    Args:
        module: it is moved to xla. In place.
        mesh: of all devices, with an axis 'fsdp'; by default the global mesh.
        shard_output: called as `shard_output(output, mesh)` after each forward to cut the output in
            place (`mark_sharding`). By default a tensor's first dimension, that of samples; of a
            tuple or list the first tensor's; of an object with `logits` those.
        auto_wrap_policy: which submodules get wrappers of their own; see
            `torch_xla.distributed.fsdp.wrap`. Wrappers mark where activations are cut, and how far
            backward may run ahead.
        auto_wrapper_callable: makes these wrappers, called like this class. For gradient
            checkpointing, it calls this class with `checkpoint_module` of its module.
        extra_data_axis: another axis of the mesh over which only the batch is cut.

    Raises:
        RuntimeError: outside SPMD mode, and if `module` is one of these.
        ValueError: without a mesh, or if it has no such axes.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        mesh: Mesh | None = None,
        shard_output: Callable[[Any, Mesh], None] | None = None,
        auto_wrap_policy: Callable[..., bool] | None = None,
        auto_wrapper_callable: Callable[..., nn.Module] | None = None,
        extra_data_axis: str | None = None,
    ) -> None:
        if isinstance(module, SpmdFullyShardedDataParallel):
            raise RuntimeError("SpmdFullyShardedDataParallel: the module is wrapped already")
        if not isinstance(module, nn.Module):
            raise TypeError(f"SpmdFullyShardedDataParallel: a module, not {type(module).__name__}")
        mesh = get_global_mesh() if mesh is None else mesh
        if mesh is not None and not isinstance(mesh, Mesh):
            raise TypeError(f"SpmdFullyShardedDataParallel: a Mesh, not {type(mesh).__name__}")
        if mesh is None:
            raise ValueError(
                "SpmdFullyShardedDataParallel: give a mesh, or set one by set_global_mesh"
            )
        for axis in (_AXIS, extra_data_axis):
            if axis is not None and mesh.get_axis_name_idx(axis) is None:
                raise ValueError(
                    f"SpmdFullyShardedDataParallel: the mesh has no axis {axis!r}; its axes are "
                    f"{dict(mesh.shape())}"
                )
        super().__init__()
        batch_axes = (_AXIS,) if extra_data_axis is None else (extra_data_axis, _AXIS)
        self._mesh = mesh
        self._shard_output = shard_output or functools.partial(_shard_output, batch_axes)
        module.to("xla")
        if auto_wrap_policy is not None:
            recursive_wrap(
                module,
                auto_wrap_policy,
                auto_wrapper_callable or SpmdFullyShardedDataParallel,
                ignored_modules=(),
                ignored_params=(),
                only_wrap_children=True,
                mesh=mesh,
                shard_output=shard_output,
                extra_data_axis=extra_data_axis,
            )
        self._orig_module = module
        for parameter in module.parameters():
            if sharding_type(parameter) not in (ShardingType.TILED, ShardingType.PARTIAL):
                mark_sharding(parameter, mesh, _partition_spec(parameter, mesh))
        apply_backward_optimization_barrier(self)
        self._register_state_dict_hook(_without_prefix)
        self.register_load_state_dict_pre_hook(_with_prefix)

    @property
    def module(self) -> nn.Module:
        """The module inside."""
        return self._orig_module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module inside makes of its arguments, cut by `shard_output`."""
        output = self._orig_module(*args, **kwargs)
        self._shard_output(output, self._mesh)
        return output

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "_orig_module":
                raise
            return getattr(self._orig_module, name)

    def __getitem__(self, key: Any) -> Any:
        return self._orig_module[key]


def _partition_spec(parameter: torch.Tensor, mesh: Mesh) -> PartitionSpec:
    parts = mesh.shape()[_AXIS]
    spec: list[str | None] = [None] * parameter.dim()
    possible = [d for d, size in enumerate(parameter.shape) if size >= parts]
    if possible:
        best = max(possible, key=lambda d: (parameter.shape[d] % parts == 0, parameter.shape[d]))
        spec[best] = _AXIS
    return tuple(spec)


def _shard_output(batch_axes: tuple[str, ...], output: Any, mesh: Mesh) -> None:
    """Cuts the samples of a tensor, and of its gradient."""
    if isinstance(output, tuple | list) and output:
        output = output[0]
    tensor = getattr(output, "logits", output)
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(
            f"SpmdFullyShardedDataParallel: an output of type {type(output).__name__} needs a "
            "shard_output of yours, which marks the tensors in it"
        )
    if tensor.dim() == 0:
        return
    spec = (batch_axes, *[None] * (tensor.dim() - 1))
    mark_sharding(tensor, mesh, spec)
    if tensor.requires_grad:
        sharding = mesh.get_op_sharding(spec)
        tensor.register_hook(lambda grad: _XLAC._xla_constrain_sharding(grad, sharding))


def _without_prefix(
    module: nn.Module, state_dict: dict[str, Any], prefix: str, local_metadata: Any
) -> None:
    inner = prefix + _PREFIX
    _rename(state_dict, inner, prefix)
    # Modules' versions, by their names without the last dot.
    versions = getattr(state_dict, "_metadata", {})
    for name in [name for name in versions if (name + ".").startswith(inner)]:
        versions[(prefix + (name + ".")[len(inner) :]).removesuffix(".")] = versions.pop(name)


def _with_prefix(module: nn.Module, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
    # A state with the prefix is that of a program for torch_xla of old.
    if not any(key.startswith(prefix + _PREFIX) for key in state_dict):
        _rename(state_dict, prefix, prefix + _PREFIX)


def _rename(state_dict: dict[str, Any], old: str, new: str) -> None:
    """Replaces a prefix of keys, in place, with their order kept."""
    entries = list(state_dict.items())
    state_dict.clear()
    for key, value in entries:
        state_dict[new + key[len(old) :] if key.startswith(old) else key] = value
