"""`step.prepare(...)` of `torch_xla.compile`: a step's program, compiled before the step is called.

The step's body is traced with stand-ins for its arguments, and everything it did is undone: to
tensors by the compiled half (csrc/lazy/rehearsal.h), to the rest by `snapshot`.
"""

from __future__ import annotations

import atexit
import logging
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_xla._extension import _XLAC
from torch_xla._internal import steps
from torch_xla._internal.snapshot import Snapshot

_logger = logging.getLogger("torch_xla.prepare")

# A compiler must not be at work while the process takes itself apart.
atexit.register(_XLAC._finish_compiling_behind)


def prepare(f: Callable, name: str, args: tuple, kwargs: dict[str, Any]) -> bool:
    """Does what `_rehearse` says. Whether it could: if not, the log has the reason."""
    reason = _rehearse(f, name, args, kwargs)
    if reason:
        _logger.warning("torch_xla.compile: %s was not prepared: %s", name, reason)
    return not reason


def _rehearse(f: Callable, name: str, args: tuple, kwargs: dict[str, Any]) -> str:
    """Traces `f(*args, **kwargs)` and has its program compiled in the background.

    Args:
        f: the function or module.
        name: of the program, in reports.
        args: as `f` takes them; tensors on `meta` stand for tensors on the device.
        kwargs: the same.

    Returns:
        why that cannot be done, or "".
    """
    steps.mark(reset_scope=False)
    closures = steps.waiting_closures()
    try:
        snapshot = Snapshot([f, args, kwargs])
    except Exception as error:  # too much, or objects that cannot be looked at
        return f"what it reaches cannot be put back: {error}"
    graph_name = _XLAC._get_current_graph_name()
    multithreading = torch._C._is_multithreading_enabled()
    try:
        rehearsal = _XLAC._Rehearsal(_XLAC._xla_get_default_device())
    except RuntimeError as error:  # inside another one, say
        return str(error)
    try:
        args, kwargs = pytree.tree_map_only(
            torch.Tensor, lambda tensor: _stand_in(rehearsal, tensor), (args, kwargs)
        )
        _XLAC._set_current_graph_name(name)
        # Backward passes on threads of their own could not be told from other work.
        torch.autograd.set_multithreading_enabled(False)
        results = f(*args, **kwargs)
        if steps.waiting_closures() != closures:
            return "it adds step closures"
        for tensor, alias in snapshot.dropped():
            rehearsal.forget([tensor, alias])
        rehearsal.finish()
        del results
        return ""
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        rehearsal.cancel()
        torch._C._set_multithreading_enabled(multithreading)
        _XLAC._set_current_graph_name(graph_name)
        steps.drop_closures(closures)
        snapshot.restore()


def _stand_in(rehearsal: Any, tensor: torch.Tensor) -> torch.Tensor:
    if tensor.device.type != "meta":
        return tensor
    return rehearsal.stand_in(tensor).requires_grad_(tensor.requires_grad)
