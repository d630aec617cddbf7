"""A plugin that refuses launches, for tests in a process of their own (PYTHONPATH: this folder)."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable

import torch_xla

_HEAD = 40  # bytes of the plugin's function table before the functions
_EXECUTE = 55  # PJRT_LoadedExecutable_Execute's place among them
_ARGUMENTS = 6  # where the number of arguments stands in the words that a launch is given
_Execute = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t))


class Refusals:
    """While `left` is positive each launch takes one from it and fails, with an error of the
    plugin's own: arguments that claim to have no size. So do all launches of programs with more
    arguments than `more_arguments_than`, unless that is None."""

    def __init__(self) -> None:
        self.left = 0
        self.more_arguments_than: int | None = None
        library = ctypes.CDLL(torch_xla._XLAC._plugin_path())
        library.GetPjrtApi.restype = ctypes.c_void_p
        address = library.GetPjrtApi() + _HEAD + _EXECUTE * ctypes.sizeof(ctypes.c_void_p)
        page = address // mmap.PAGESIZE * mmap.PAGESIZE
        writable = mmap.PROT_READ | mmap.PROT_WRITE
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(page), mmap.PAGESIZE, writable) == 0
        slot = ctypes.c_void_p.from_address(address)
        self._execute = _Execute(slot.value)
        self._function = _Execute(self._launch)  # lives as long as it may be called
        slot.value = ctypes.cast(self._function, ctypes.c_void_p).value

    def _launch(self, arguments: ctypes.Array) -> int | None:
        limit = self.more_arguments_than
        if self.left > 0:
            self.left -= 1
            arguments[0] = 0
        elif limit is not None and arguments[_ARGUMENTS] > limit:
            arguments[0] = 0
        return self._execute(arguments)


def outcome(action: Callable[[], object]) -> object:
    """What the action returns, or "refused"."""
    try:
        return action()
    except RuntimeError as error:
        assert "Execute" in str(error), error
        return "refused"
