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
            "torch.distributed.tensor._api": _take_local_for_whole,
            "torch.distributed.fsdp._fully_shard._fully_shard": _refuse_fully_shard,
        }
    )


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


def _refuse_fully_shard(module: ModuleType) -> None:
    """torch's `fully_shard` gathers parameters by process groups, of which xla has none."""
    validate = getattr(module, "_validate_mesh", None)
    if validate is None:
        return

    def validate_mesh(mesh: Any, *args: Any, **kwargs: Any) -> None:
        if getattr(mesh, "device_type", None) == "xla":
            raise NotImplementedError(
                "fully_shard: over a mesh of xla parameters are cut by "
                "torch_xla.experimental.spmd_fully_sharded_data_parallel."
                "SpmdFullyShardedDataParallel, and XLA gathers them where they are used"
            )
        validate(mesh, *args, **kwargs)

    module._validate_mesh = validate_mesh
