"""Sharded models as files that others read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import torch


def export_safetensors(
    model: torch.nn.Module | Mapping[str, torch.Tensor], file: str | os.PathLike[str]
) -> None:
    """Writes the whole parameters and buffers of a model, gathered from the devices.

    Tensors that share memory are written once each. The file is complete or not there.

    Args:
        model: a module, or its state dict.
        file: its name; what has that name is replaced.

    Raises:
        ImportError: `safetensors` is not installed.
    """
    from safetensors.torch import save_file

    state_dict = model.state_dict() if isinstance(model, torch.nn.Module) else model
    tensors = {
        name: value.detach().cpu().contiguous().clone()
        for name, value in state_dict.items()
        if isinstance(value, torch.Tensor)
    }
    target = Path(file)
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        save_file(tensors, partial)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
