"""Makes Dynamo know xla devices, without importing it: that takes longer than all the rest.

torch has an entry for openxla of its own, made before anything here can run. What is done to two of
its modules is done when somebody imports them.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


def register() -> None:
    """Sets what happens after Dynamo is imported, or does it when that has happened."""
    after_import(_THEN)


def after_import(then_do: dict[str, Callable[[ModuleType], None]]) -> None:
    """Calls functions with modules by their names, once these are imported."""
    waiting = {}
    for name, then in then_do.items():
        if name in sys.modules:
            then(sys.modules[name])
        else:
            waiting[name] = then
    if waiting:
        sys.meta_path.insert(0, _Finder(waiting))


def _use_our_backends(module: ModuleType) -> None:
    from torch._dynamo.backends import registry

    from torch_xla._dynamo import backends

    for name in ("openxla", "openxla_eval"):
        registry._BACKENDS[name] = None
        registry._COMPILER_FNS[name] = getattr(backends, name)
        setattr(module, name, getattr(backends, name))


def _register_interface(module: ModuleType) -> None:
    from torch_xla import _xla_module

    class XlaInterface(module.DeviceInterface):
        """What Dynamo asks of a type of device."""

        device = _xla_module.device
        current_device = staticmethod(_xla_module.current_device)
        set_device = staticmethod(_xla_module.set_device)
        device_count = staticmethod(_xla_module.device_count)
        is_available = staticmethod(_xla_module.is_available)
        synchronize = staticmethod(_xla_module.synchronize)
        get_device_properties = staticmethod(_xla_module.get_device_properties)
        is_bf16_supported = staticmethod(_xla_module.is_bf16_supported)
        memory_allocated = staticmethod(_xla_module.memory_allocated)

        @staticmethod
        def exchange_device(device: int) -> int:
            before = _xla_module.current_device()
            if device >= 0:
                _xla_module.set_device(device)
            return before

        maybe_exchange_device = exchange_device

    module.register_interface_for_device("xla", XlaInterface)


def _number_fake_devices(module: ModuleType) -> None:
    """`device="xla"` means the current device in what Dynamo traces too."""
    has_indices = module._is_indexed_device_type
    module._is_indexed_device_type = lambda kind: kind == "xla" or has_indices(kind)


_THEN: dict[str, Callable[[ModuleType], None]] = {
    "torch._dynamo.backends.torchxla": _use_our_backends,
    "torch._dynamo.device_interface": _register_interface,
    "torch._subclasses.fake_tensor": _number_fake_devices,
}


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules as always, and has something done once they are loaded."""

    def __init__(self, waiting: dict[str, Callable[[ModuleType], None]]) -> None:
        self._waiting = waiting

    def find_spec(
        self, name: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        then = self._waiting.pop(name, None)
        if then is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, then)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: Any, then: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._then = then

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._then(module)
