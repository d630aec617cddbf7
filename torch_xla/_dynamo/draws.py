"""Random numbers that a checkpoint draws twice.

torch runs the op in the forward pass with an operator that gives its random state too, and in the
backward pass with one that takes it. Neither knows xla; these keep the state on the device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch._prims.rng_prims import run_and_save_rng_state, run_with_rng_state

from torch_xla._extension import _XLAC


def save_and_run(op: Callable, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, Any]:
    """The state, and what the op gives."""
    return _XLAC._draw_state(_device(args, kwargs)), op(*args, **kwargs)


def run_again(state: torch.Tensor, op: Callable, *args: Any, **kwargs: Any) -> Any:
    """What the op gave when `state` was saved."""
    _XLAC._set_draw_state(state)
    try:
        return op(*args, **kwargs)
    finally:
        _XLAC._set_draw_state(None)


ON_DEVICE = (save_and_run, run_again)


def use_on_device(module: fx.GraphModule) -> None:
    """Replaces torch's operators where what they run is an op of an xla device."""
    for node in module.graph.nodes:
        if node.target is run_and_save_rng_state or node.target is run_with_rng_state:
            values = [n.meta["val"] for n in node.all_input_nodes if "val" in n.meta]
            if _device(values, node.kwargs):
                saves = node.target is run_and_save_rng_state
                node.target = save_and_run if saves else run_again


def _device(args: Any, kwargs: dict[str, Any]) -> str:
    for arg in args:
        if isinstance(arg, torch.Tensor) and arg.device.type == "xla":
            return str(arg.device)
    device = kwargs.get("device")
    return str(device) if device is not None and torch.device(device).type == "xla" else ""
