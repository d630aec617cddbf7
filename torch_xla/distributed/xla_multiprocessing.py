"""Starting the training function on every device, and helpers for processes that do."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn

from torch_xla._api import launch

__all__ = ["MpModelWrapper", "MpSerialExecutor", "spawn"]

T = TypeVar("T")


def spawn(
    fn: Callable[..., Any],
    args: tuple = (),
    nprocs: int | None = None,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> None:
    """Calls `fn(index, *args)` for each device; with a single device, in this process.

    Args:
        fn: the training function; its first argument is the index of its device.
        args: its other arguments.
        nprocs: None for every device there is, 1 for the first one only.
        join: wait for the end. A function that runs in this process is always waited for.
        daemon: make the processes that several devices need daemons.
        start_method: of those processes.

    Raises:
        ValueError: if `nprocs` is neither None nor 1: the number of processes is that of the
            devices, which the environment decides (`CPU_NUM_DEVICES`, `TPU_VISIBLE_CHIPS`, ...).
        NotImplementedError: as `torch_xla.launch`, for several devices.
    """
    del join, daemon
    if nprocs not in (None, 1):
        raise ValueError(
            f"spawn: nprocs must be None (every device) or 1, got {nprocs}; "
            "how many devices there are is set by the environment, as with CPU_NUM_DEVICES"
        )
    launch(fn, args, start_method=start_method, debug_single_process=nprocs == 1)


class MpModelWrapper:
    """A model made once, before `spawn`, and moved to its device by each process in turn.

    Example:
        >>> wrapped = MpModelWrapper(torch.nn.Linear(2, 2))
        >>> wrapped.to(torch.device("cpu")).weight.shape
        torch.Size([2, 2])
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._lock = threading.Lock()

    def to(self, device: torch.device | str) -> nn.Module:
        """The model, moved to `device`: its own parameters, so once for each process."""
        with self._lock:
            return self._model.to(device)


class MpSerialExecutor:
    """Runs a function in one thread at a time: for downloads and other work that must not overlap.

    Example:
        >>> MpSerialExecutor().run(lambda: 3)
        3
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def run(self, fn: Callable[[], T]) -> T:
        """Calls `fn` while no other thread is in `run`, and returns its result."""
        with self._lock:
            return fn()
