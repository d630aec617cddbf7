"""Stores graphs as files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from torch_xla._extension import _XLAC
from torch_xla.core import xla_model as xm

_counts: dict[str, int] = {}


def save_tensors_graph(
    save_dir: str | Path, name: str, tensors: Sequence[torch.Tensor], fmt: str = "text"
) -> Path:
    """Stores the graph that computes some tensors. Nothing is run.

    Args:
        save_dir: a folder; it is made when missing.
        name: of the file, which also gets a number.
        fmt: "text" (the traced graph), "dot" (the same for Graphviz) or "stablehlo".

    Returns:
        The file's path.

    Raises:
        ValueError: for any other `fmt`.
    """
    makers = {
        "text": _XLAC._get_xla_tensors_text,
        "dot": _XLAC._get_xla_tensors_dot,
        "stablehlo": xm.get_stablehlo,
    }
    if fmt not in makers:
        raise ValueError(f"fmt must be one of {sorted(makers)}, got {fmt!r}")
    folder = Path(save_dir)
    folder.mkdir(parents=True, exist_ok=True)
    number = _counts[name] = _counts.get(name, 0) + 1
    path = folder / f"{name}-{number:04}.{fmt}"
    path.write_text(makers[fmt](list(tensors)))
    return path
