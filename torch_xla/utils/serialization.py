"""Checkpoints with one file a tensor, so that no host ever holds all of a big model."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch

from torch_xla.core import xla_model as xm
from torch_xla.utils import utils as xu


class TensorReference:
    """Stands for a tensor in the file that describes a checkpoint."""

    def __init__(self, tid: int) -> None:
        self.tid = tid


def _tensor_file(path: str | Path, tid: int) -> Path:
    return Path(f"{path}.tensors") / f"tensor_{tid}.pt"


def save(
    data: Any, path: str | Path, master_only: bool = True, global_master: bool = False
) -> None:
    """Stores `data` at `path`, with its xla tensors as CPU tensors in a folder beside it.

    Arguments are those of `torch_xla.core.xla_model.save`. What was there before is replaced.
    """
    writes = not master_only or xm.is_master_ordinal(local=not global_master)
    folder = _tensor_file(path, 0).parent
    if writes:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)

    def store(tensors: list[torch.Tensor]) -> list[TensorReference]:
        xm.unlazy(tensors)
        for tid, tensor in enumerate(tensors):
            if writes:  # one tensor at a time is on the host
                torch.save(tensor.cpu(), _tensor_file(path, tid))
        return [TensorReference(tid) for tid in range(len(tensors))]

    arena = xm.ToXlaTensorArena(
        store, lambda value: isinstance(value, torch.Tensor) and xm.is_xla_tensor(value)
    )
    description = arena.transform(data)
    if writes:
        torch.save(description, path)
    xm.rendezvous("torch_xla.utils.serialization.save")


def load(path: str | Path) -> Any:
    """What `save` stored, with CPU tensors."""
    description = torch.load(path, weights_only=False)
    return xu.for_each_instance_rewrite(
        description,
        lambda value: isinstance(value, TensorReference),
        lambda reference: torch.load(_tensor_file(path, reference.tid), weights_only=False),
    )
