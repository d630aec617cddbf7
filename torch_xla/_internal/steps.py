"""The end of a step: a sync, then the closures that wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from torch_xla._extension import _XLAC
from torch_xla.utils.closures import AsyncClosureHandler, ClosureHandler


class DeviceContext:
    """What a thread keeps for one device between two steps."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.closures: list[Callable[[], Any]] = []
        self.async_closures: list[Callable[[], Any]] = []
        self.closure_handler = ClosureHandler()
        self.async_closure_handler = AsyncClosureHandler()
        self.closures_run = 0


class _Contexts(threading.local):
    def __init__(self) -> None:
        self.by_device: dict[str, DeviceContext] = {}


_contexts = _Contexts()


def context(device: str | None = None) -> DeviceContext:
    """This thread's context of a device, by default its current one."""
    name = device or _XLAC._xla_get_default_device()
    return _contexts.by_device.setdefault(name, DeviceContext(name))


def mark(wait: bool = False, reset_scope: bool = True) -> None:
    """Syncs the current device and runs the closures that were added since the last time."""
    current = context()
    _XLAC._xla_step_marker(current.device, [], wait=wait, reset_scope=reset_scope)
    closures, current.closures = current.closures, []
    current.closures_run += len(closures) + len(current.async_closures)
    if closures:
        current.closure_handler.run_all(closures)
    closures, current.async_closures = current.async_closures, []
    if closures:
        current.async_closure_handler.run_all(closures)


def closures_run() -> int:
    """How many closures this thread's current device has run."""
    return context().closures_run


def waiting_closures() -> list[tuple[int, int]]:
    """How many closures wait for the end of the step, by device, in this thread."""
    return [(len(c.closures), len(c.async_closures)) for c in _contexts.by_device.values()]


def drop_closures(waiting: list[tuple[int, int]]) -> None:
    """Drops those that were added since `waiting_closures` gave `waiting`."""
    for current, (closures, async_closures) in zip(
        _contexts.by_device.values(), waiting + [(0, 0)] * len(_contexts.by_device), strict=False
    ):
        del current.closures[closures:]
        del current.async_closures[async_closures:]


def run_waiting_closures() -> None:
    """Ends the step if closures wait for that."""
    if not any(c.closures or c.async_closures for c in _contexts.by_device.values()):
        return
    current = context()
    if current.closures or current.async_closures:
        mark()
