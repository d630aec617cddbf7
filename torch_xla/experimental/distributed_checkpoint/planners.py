"""What `torch.distributed.checkpoint` asks: which parts of which tensors are written and read."""

from __future__ import annotations

import dataclasses
import io
import threading
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.metadata import (
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    ReadItem,
    SavePlan,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

from torch_xla.experimental.distributed_checkpoint._helpers import (
    CpuShards,
    Offsets,
    chunk,
    chunks_of,
    is_xla,
    load_parts,
    settle,
)


class SPMDSavePlanner(DefaultSavePlanner):
    """Writes each part of a sharded xla tensor once; all else as `DefaultSavePlanner` does.

    Takes the arguments of `DefaultSavePlanner`. A state dict may also hold tensors that lie on the
    host part by part (`_helpers.CpuShards`).
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self._enable_plan_caching:
            raise ValueError("SPMDSavePlanner: plans are made anew each time, and not cached")
        self._lock = threading.Lock()  # writers ask from several threads
        self._fetched: tuple[str, CpuShards] | None = None

    def create_local_plan(self) -> SavePlan:
        """The parts that this process writes."""
        state_dict = self.state_dict
        # How tensors lie is known when they are computed. Not for what is on the host already: a
        # thread in the background must not end the step that is being traced meanwhile.
        if any(map(is_xla, state_dict.values())):
            settle()
        ours = {fqn: value for fqn, value in state_dict.items() if _has_parts(value)}
        self.state_dict = {fqn: v for fqn, v in state_dict.items() if fqn not in ours}
        try:
            plan = super().create_local_plan()
        finally:
            self.state_dict = state_dict
        items = [item for fqn, value in ours.items() for item in _write_items(fqn, value)]
        self.plan = dataclasses.replace(plan, items=[*plan.items, *items])
        return self.plan

    def resolve_data(self, write_item: WriteItem) -> torch.Tensor | io.BytesIO:
        """The contents of an item, on the host."""
        fqn = write_item.index.fqn
        value = self.state_dict[fqn]
        if not _has_parts(value):
            return super().resolve_data(write_item)
        with self._lock:
            if isinstance(value, CpuShards):
                shards = value
            elif self._fetched and self._fetched[0] == fqn:
                shards = self._fetched[1]
            else:
                shards = CpuShards.of(value)
                self._fetched = (fqn, shards)
        part = shards.parts.get(tuple(write_item.index.offset))
        if part is None or part.shape != write_item.tensor_data.chunk.sizes:
            raise RuntimeError(f"'{fqn}' was cut in another way while it was being saved")
        return part


class SPMDLoadPlanner(DefaultLoadPlanner):
    """Reads into sharded xla tensors, in place, and of each part no more than a device holds.

    Takes the arguments of `DefaultLoadPlanner`. Tensors need not be sharded as they were saved.
    """

    def create_local_plan(self) -> LoadPlan:
        """The parts that this process reads."""
        settle()
        plan = super().create_local_plan()
        self._parts: dict[str, dict[Offsets, torch.Tensor]] = {}
        self._missing: dict[str, int] = {}
        items = [item for item in plan.items if not self._is_ours(item)]
        for fqn in dict.fromkeys(i.dest_index.fqn for i in plan.items if self._is_ours(i)):
            items += self._read_items(fqn, self.state_dict[fqn])
        return LoadPlan(items, plan.storage_data, plan.planner_data)

    def _is_ours(self, item: ReadItem) -> bool:
        return is_xla(self.state_dict[item.dest_index.fqn])

    def _read_items(self, fqn: str, tensor: torch.Tensor) -> list[ReadItem]:
        stored = self.metadata.state_dict_metadata[fqn]
        if not isinstance(stored, TensorStorageMetadata):
            raise ValueError(f"'{fqn}' is a tensor, and none in the checkpoint")
        if stored.size != tensor.shape:
            raise ValueError(
                f"'{fqn}' has shape {tuple(tensor.shape)}, "
                f"and {tuple(stored.size)} in the checkpoint"
            )
        wanted = list(chunks_of(tensor).values())
        self._parts[fqn] = {
            tuple(part.offsets): torch.empty(part.sizes, dtype=tensor.dtype) for part in wanted
        }
        items = create_read_items_for_chunk_list(fqn, stored, wanted)
        self._missing[fqn] = len(items)
        if not items:
            load_parts(tensor, self._parts.pop(fqn))
        return items

    def resolve_tensor(self, read_item: ReadItem) -> torch.Tensor:
        """Host memory that an item is read into."""
        if not self._is_ours(read_item):
            return super().resolve_tensor(read_item)
        index = read_item.dest_index
        target = self._parts[index.fqn][tuple(index.offset)]
        for dim, (offset, length) in enumerate(
            zip(read_item.dest_offsets, read_item.lengths, strict=True)
        ):
            target = target.narrow(dim, offset, length)
        return target

    def commit_tensor(self, read_item: ReadItem, tensor: torch.Tensor) -> None:
        """Moves a tensor to its devices when its last part has been read."""
        if not self._is_ours(read_item):
            super().commit_tensor(read_item, tensor)
            return
        fqn = read_item.dest_index.fqn
        self._missing[fqn] -= 1
        if self._missing[fqn] == 0:
            load_parts(self.state_dict[fqn], self._parts.pop(fqn))


def _has_parts(value: Any) -> bool:
    return is_xla(value) or isinstance(value, CpuShards)


def _write_items(fqn: str, value: torch.Tensor | CpuShards) -> list[WriteItem]:
    if isinstance(value, CpuShards):
        chunks = {offsets: chunk(offsets, part.shape) for offsets, part in value.parts.items()}
        properties = TensorProperties.create_from_tensor(next(iter(value.parts.values())))
    else:
        chunks = chunks_of(value)
        properties = TensorProperties.create_from_tensor(value.detach())
    return [
        WriteItem(
            index=MetadataIndex(fqn, part.offsets),
            type=WriteItemType.SHARD,
            tensor_data=TensorWriteData(chunk=part, properties=properties, size=value.shape),
        )
        for part in chunks.values()
    ]
