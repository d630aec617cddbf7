"""Plugins of vendors.

A package offers its plugin as an entry point of group `torch_xla.plugins`: the name is what users
put into `PJRT_DEVICE`, the value a `DevicePlugin` subclass or a function that makes one.

```toml
[project.entry-points."torch_xla.plugins"]
mychip = "my_package:MyChipPlugin"
```
"""

from __future__ import annotations

from torch_xla._internal import plugins as _plugins
from torch_xla._internal.plugins import DevicePlugin

__all__ = [
    "DevicePlugin",
    "default",
    "register_installed_plugins",
    "register_plugin",
    "use_dynamic_plugins",
    "using_dynamic_plugins",
]


def register_plugin(name: str, device_plugin: DevicePlugin) -> None:
    """Makes `PJRT_DEVICE=name` choose this plugin, whatever the case of the letters."""
    _plugins.register(name, device_plugin)


def register_installed_plugins() -> None:
    """Loads the plugins of all installed packages. Without it, one is loaded when it is chosen."""
    for entry in _plugins._entry_points():
        _plugins.get(entry.name)


def default() -> DevicePlugin:
    """The plugin that this process uses or would use."""
    return _plugins.get(_plugins.device_type())


def use_dynamic_plugins() -> None:
    """Does nothing: every plugin is loaded at run time."""


def using_dynamic_plugins() -> bool:
    """True: every plugin is loaded at run time."""
    return True
