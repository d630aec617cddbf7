"""Which PJRT plugin drives this process.

`PJRT_DEVICE` names the kind of device:

- `CPU`: the plugin of the wheel lammps-jax-pjrt-cpu when it is installed (newer, and faster in
  bfloat16), else that of fastatomstruct-xla-cpu. `CPU_NUM_DEVICES` asks for that many devices.
- `TPU`: the wheel libtpu, or the library that `TPU_LIBRARY_PATH` names.
- `CUDA`: the wheel jax-cuda13-pjrt or jax-cuda12-pjrt.
- `LIBRARY`: the shared library that `PJRT_LIBRARY_PATH` names.
- any other name: a vendor's plugin, registered by `register` or found as an entry point of group
  `torch_xla.plugins` (compared in capitals).

`PJRT_LIBRARY_PATH` replaces the library of every kind. Without `PJRT_DEVICE`, a TPU or an NVIDIA
GPU of this machine is used when its wheel is installed, else the CPU.

Wheels are found by their metadata and never imported: some of them would import JAX.
"""

from __future__ import annotations

import importlib.metadata
import logging
import os
import platform
from collections.abc import Callable
from pathlib import Path

logger = logging.getLogger("torch_xla")

ENTRY_POINT_GROUP = "torch_xla.plugins"


class DevicePlugin:
    """What a vendor says about its plugin. Subclass it, and override `library_path` at least."""

    def library_path(self) -> str:
        """Path of the shared library with `GetPjrtApi`."""
        raise NotImplementedError(f"{type(self).__name__} does not say where its library is")

    def host_index(self) -> int:
        """Number of this host among those that run the program together."""
        return 0

    def configure_single_process(self) -> None:
        """Called before the client is made, in a process that drives all local devices."""

    def configure_multiprocess(self, local_rank: int, local_world_size: int) -> None:
        """Called before the client is made, in one of several processes of a host."""

    def physical_chip_count(self) -> int:
        """Number of chips of this host; 0 where nobody knows."""
        return 0

    def client_create_options(self) -> dict:
        """Options of the client: names to str, int, bool, float or list of int."""
        return {}

    def requires_xla_coordinator(self) -> bool:
        """Whether its clients meet through a coordination service."""
        return False


class _WheelPlugin(DevicePlugin):
    """A plugin inside the first of some wheels that is installed."""

    def __init__(self, *distributions: str) -> None:
        self.distributions = distributions

    def find(self) -> str | None:
        for name in self.distributions:
            library = _library_in_wheel(name)
            if library:
                return library
        return None

    def library_path(self) -> str:
        found = self.find()
        if found is None:
            wanted = " or ".join(f"pip install {name}" for name in self.distributions)
            raise RuntimeError(
                f"no PJRT plugin for this device is installed. Try: {wanted}; "
                "or name a library with PJRT_LIBRARY_PATH"
            )
        return found


class CpuPlugin(_WheelPlugin):
    def __init__(self) -> None:
        super().__init__("lammps-jax-pjrt-cpu", "fastatomstruct-xla-cpu")

    def client_create_options(self) -> dict:
        return {"cpu_device_count": cpu_device_count()}


class TpuPlugin(_WheelPlugin):
    def __init__(self) -> None:
        super().__init__("libtpu")

    def library_path(self) -> str:
        return os.environ.get("TPU_LIBRARY_PATH") or super().library_path()


class CudaPlugin(_WheelPlugin):
    def __init__(self) -> None:
        super().__init__("jax-cuda13-pjrt", "jax-cuda12-pjrt")


class LibraryPlugin(DevicePlugin):
    def library_path(self) -> str:
        raise RuntimeError(
            "PJRT_DEVICE=LIBRARY needs PJRT_LIBRARY_PATH, the path of a shared library that "
            "exports GetPjrtApi"
        )


_registered: dict[str, DevicePlugin] = {
    "CPU": CpuPlugin(),
    "TPU": TpuPlugin(),
    "CUDA": CudaPlugin(),
    "LIBRARY": LibraryPlugin(),
}


_devices_of_dry_run = 0  # no dry run


def register(name: str, plugin: DevicePlugin) -> None:
    """Makes `PJRT_DEVICE=name` (in capitals) choose this plugin."""
    _registered[name.upper()] = plugin


def get(device_type: str) -> DevicePlugin:
    """The plugin of this name. Entry points are looked at, and loaded, only when it is no other.

    Raises:
        RuntimeError: if there is none; the message lists those there are.
    """
    name = device_type.upper()
    if name in _registered:
        return _registered[name]
    installed = {entry.name.upper(): entry for entry in _entry_points()}
    if name in installed:
        made: DevicePlugin | Callable[[], DevicePlugin] = installed[name].load()
        plugin = made() if callable(made) else made
        register(name, plugin)
        return plugin
    known = ", ".join(sorted({*_registered, *installed}))
    raise RuntimeError(f"unknown PJRT_DEVICE {device_type!r}; this installation knows {known}")


def device_type() -> str:
    """The kind of device that this process uses or would use."""
    chosen = os.environ.get("PJRT_DEVICE", "").strip()
    return chosen.upper() if chosen else _default_device_type()


def configure() -> tuple[str, str, dict]:
    """Device type, library and client options, for the runtime's first use of a device.

    Raises:
        RuntimeError: unknown device type, plugin not installed, or options that make no sense.
    """
    kind = device_type()
    if _devices_of_dry_run:
        return kind, CpuPlugin().library_path(), {"cpu_device_count": _devices_of_dry_run}
    plugin = get(kind)
    library = os.environ.get("PJRT_LIBRARY_PATH") or plugin.library_path()
    plugin.configure_single_process()
    return kind, str(library), plugin.client_create_options()


def pretend(devices: int) -> None:
    """Makes the runtime one of so many devices of the kind that `PJRT_DEVICE` says, none of which
    is here: for a dry run, which computes nothing."""
    global _devices_of_dry_run
    _devices_of_dry_run = devices


def cpu_device_count() -> int:
    """What `CPU_NUM_DEVICES` asks for; 1 without it."""
    text = os.environ.get("CPU_NUM_DEVICES", "1")
    count = int(text) if text.isdecimal() else 0
    if not 1 <= count <= 128:
        raise RuntimeError(f"CPU_NUM_DEVICES must be a number from 1 to 128, got {text!r}")
    return count


def _entry_points() -> importlib.metadata.EntryPoints:
    return importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)


def _library_in_wheel(name: str) -> str | None:
    try:
        files = importlib.metadata.files(name) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    libraries = [file for file in files if file.suffix == ".so"]
    # Where a wheel has several, the plugin is the one that says so.
    libraries.sort(key=lambda file: not any(w in file.name for w in ("pjrt", "plugin", "libtpu")))
    for file in libraries:
        path = Path(str(file.locate()))
        if path.is_file():
            return str(path)
    return None


def _default_device_type() -> str:
    from torch_xla._internal import tpu

    if tpu.num_available_chips() > 0 and TpuPlugin().find():
        kind = "TPU"
    elif Path("/dev/nvidia0").exists() and CudaPlugin().find():
        kind = "CUDA"
    else:
        kind = "CPU"
    logger.info("PJRT_DEVICE is not set; using %s on %s", kind, platform.node())
    return kind
