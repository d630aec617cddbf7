"""Tensors as the chunks that a checkpoint holds."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch.distributed._shard._utils import narrow_tensor_by_index  # noqa: F401
from torch.distributed.checkpoint._dedup_tensors import dedup_tensors  # noqa: F401
from torch.distributed.checkpoint._nested_dict import (  # noqa: F401
    FLATTEN_MAPPING,
    flatten_state_dict,
)
from torch.distributed.checkpoint._traverse import (  # noqa: F401
    CONTAINER_TYPE,
    OBJ_PATH,
    PATH_ITEM,
    STATE_DICT_ITEM,
    set_element,
)
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata

import torch_xla
from torch_xla._extension import _XLAC

Offsets = tuple[int, ...]


def settle() -> None:
    """Computes what is pending as one program, where tensors are on a device at all."""
    if _XLAC._xla_runtime_is_initialized():
        torch_xla.sync()


def is_xla(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "xla"


def chunk(offsets: Offsets, sizes: torch.Size) -> ChunkStorageMetadata:
    return ChunkStorageMetadata(offsets=torch.Size(offsets), sizes=sizes)


def _ranges(tensor: torch.Tensor, sharding: Any) -> list[list[tuple[int, int]]]:
    """For each device the part of the tensor that it holds; one whole part if it is not cut.

    Raises ValueError for what is a device's piece of a tensor (`enable_manual_sharding`).
    """
    if sharding is None or sharding.is_replicated:
        return [[(0, size) for size in tensor.shape]]
    if sharding.is_manual:
        raise ValueError(
            f"a checkpoint holds whole tensors, and one of shape {tuple(tensor.shape)} is one "
            "device's piece: disable_manual_sharding() it first"
        )
    sizes = list(tensor.shape)
    return [sharding.ranges(sizes, device) for device in range(len(sharding.tile_of))]


def _offsets(ranges: list[tuple[int, int]]) -> Offsets:
    return tuple(start for start, _ in ranges)


def _is_empty(ranges: list[tuple[int, int]]) -> bool:
    return any(start == limit for start, limit in ranges)


def chunks_of(tensor: torch.Tensor) -> dict[Offsets, ChunkStorageMetadata]:
    """The parts in which an xla tensor lies on its devices, each once, by where they begin."""
    parts = {}
    for ranges in _ranges(tensor, _XLAC._xla_get_sharding(tensor)):
        if tensor.numel() and _is_empty(ranges):
            continue  # a device behind the end of a tensor whose size is no multiple
        sizes = torch.Size(limit - start for start, limit in ranges)
        parts[_offsets(ranges)] = chunk(_offsets(ranges), sizes)
    return parts


@dataclasses.dataclass(frozen=True)
class CpuShards:
    """An xla tensor's parts on the host, each once, by where they begin."""

    shape: torch.Size
    parts: dict[Offsets, torch.Tensor]

    @classmethod
    def of(cls, tensor: torch.Tensor) -> CpuShards:
        """Copies the parts from the devices; waits for what is pending."""
        sharding = _XLAC._xla_get_sharding(tensor)
        if sharding is None or sharding.is_replicated:
            return cls(tensor.shape, {(0,) * tensor.dim(): tensor.detach().cpu()})
        held, sharding = _XLAC._xla_local_shards(tensor.detach(), distinct=True)
        all_ranges, tile_of = _ranges(tensor, sharding), sharding.tile_of
        parts = {}
        for tile, (shard, _) in enumerate(held):
            ranges = all_ranges[tile_of.index(tile)]
            if not (tensor.numel() and _is_empty(ranges)):
                parts[_offsets(ranges)] = shard
        return cls(tensor.shape, parts)


def load_parts(tensor: torch.Tensor, parts: dict[Offsets, torch.Tensor]) -> None:
    """Writes parts of `chunks_of(tensor)` into the tensor, each to the devices that hold it."""
    all_ranges = _ranges(tensor, _XLAC._xla_get_sharding(tensor))
    with torch.no_grad():
        if len(all_ranges) == 1:
            tensor.copy_(parts[_offsets(all_ranges[0])])
            return
        shards = []
        for ranges in all_ranges:
            if _is_empty(ranges):
                sizes = [limit - start for start, limit in ranges]
                shards.append(torch.empty(sizes, dtype=tensor.dtype))
            else:
                shards.append(parts[_offsets(ranges)])
        _XLAC._xla_load_local_shards(tensor.detach(), shards)


def on_host(value: Any) -> Any:
    """A state dict, or part of one, with CpuShards and copies in the place of tensors."""
    if is_xla(value):
        return CpuShards.of(value)
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: on_host(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [on_host(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


# --- Names of old ---------------------------------------------------------------------------------
# Planners written for torch_xla 2.9 import these, and torch's own that are imported above.

_CpuShards = CpuShards
_sharded_cpu_state_dict = on_host


def _is_sharded_tensor(x: Any) -> bool:
    """Whether an xla tensor is cut: each device holds a part."""
    if not is_xla(x):
        return False
    sharding = _XLAC._xla_get_sharding(x)
    return sharding is not None and not sharding.is_replicated
