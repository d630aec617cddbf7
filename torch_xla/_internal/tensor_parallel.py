"""What torch.distributed does with meshes of xla where it has no path for them itself.

`distribute_tensor` and `distribute_module` have one, which leads to `torch_xla.distributed.spmd`.
The rest is said here, once its modules are imported: that takes longer than importing this package.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import torch

from torch_xla._internal import dynamo


def register() -> None:
    """Sets what happens after modules of torch.distributed are imported."""
    dynamo.after_import(
        {
            "torch.distributed.tensor._api": _make_over_xla,
            "torch.distributed.fsdp._fully_shard._fully_shard": _shard_over_xla,
            "torch.distributed.device_mesh": _slice_over_xla,
            "torch.distributed.tensor.experimental._context_parallel._attention": (
                _refuse_context_parallel
            ),
        }
    )


def _make_over_xla(module: ModuleType) -> None:
    _take_local_for_whole(module)
    _fill_over_xla(module)


def _fill_over_xla(module: ModuleType) -> None:
    """`torch.distributed.tensor.zeros`, `ones`, `empty`, `full`, `rand` and `randn`."""
    of_torch = module._dtensor_init_helper

    @functools.wraps(of_torch)
    def fill(
        operator: Any,
        size: torch.Size,
        device_mesh: Any = None,
        placements: Any = None,
        **options: Any,
    ) -> torch.Tensor:
        if getattr(device_mesh, "device_type", None) != "xla":
            return of_torch(operator, size, device_mesh, placements, **options)
        from torch_xla.distributed.spmd import api

        value = (options.pop("fill_value", 0),) if operator is torch.full else ()
        tensor = operator(size, *value, device="xla", **options)
        return api.xla_distribute_tensor(tensor, device_mesh, placements)

    module._dtensor_init_helper = fill


def _take_local_for_whole(module: ModuleType) -> None:
    """`DTensor.from_local` over xla, which the parallelize styles call."""
    of_torch = module.DTensor.from_local

    @functools.wraps(of_torch)
    def from_local(
        local_tensor: torch.Tensor, device_mesh: Any = None, placements: Any = None, **others: Any
    ) -> torch.Tensor:
        if getattr(device_mesh, "device_type", None) != "xla":
            return of_torch(local_tensor, device_mesh, placements, **others)
        from torch_xla.distributed.spmd import api

        return api.from_local(local_tensor, device_mesh, placements)

    module.DTensor.from_local = staticmethod(from_local)


def _shard_over_xla(module: ModuleType) -> None:
    """`fully_shard` over xla, whose parameters need no process groups.

    Programs may have imported the function already, so it is changed on the inside: what torch's
    decorator calls is another.
    """
    wrapper = module.fully_shard
    cells = dict(zip(wrapper.__code__.co_freevars, wrapper.__closure__ or (), strict=True))
    if "func" not in cells:
        return
    of_torch = cells["func"].cell_contents

    @functools.wraps(of_torch)
    def fully_shard(modules: Any, *, mesh: Any = None, **options: Any) -> Any:
        mesh = _default_mesh() if mesh is None else mesh
        if getattr(mesh, "device_type", None) != "xla":
            return of_torch(modules, mesh=mesh, **options)
        from torch_xla.distributed.fsdp.fully_shard import fully_shard as over_xla

        return over_xla(modules, mesh=mesh, **options)

    cells["func"].cell_contents = fully_shard


def _default_mesh() -> Any:
    """In SPMD mode the global mesh, of that its axis 'fsdp' if it has one; else all devices in a
    row."""
    from torch_xla import runtime

    if not runtime.is_spmd():
        return None
    from torch_xla.distributed.spmd import mesh

    whole = mesh.get_global_mesh()
    if whole is None:
        return mesh.get_1d_mesh("fsdp")
    return whole if whole.get_axis_name_idx("fsdp") is None else whole["fsdp"]


def _slice_over_xla(module: ModuleType) -> None:
    """`mesh["model"]` of a mesh of xla, which needs no process groups either."""
    of_torch = module.DeviceMesh.__getitem__

    @functools.wraps(of_torch)
    def getitem(self: Any, names: Any) -> Any:
        if self.device_type != "xla":
            return of_torch(self, names)
        from torch_xla.distributed.spmd.api import convert_to_xla_mesh

        return convert_to_xla_mesh(self)[names]

    module.DeviceMesh.__getitem__ = getitem


def _refuse_context_parallel(module: ModuleType) -> None:
    """It would put the sequence into an order that is meant for ranks."""
    of_torch = module._context_parallel_buffers

    @functools.wraps(of_torch)
    def buffers(mesh: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(mesh, "device_type", None) == "xla":
            raise NotImplementedError(
                "context_parallel: over a mesh of xla, cut the dimension of the sequence by "
                "torch_xla.distributed.spmd.mark_sharding"
            )
        return of_torch(mesh, *args, **kwargs)

    module._context_parallel_buffers = buffers
