"""Questions about the processes and devices that take part (imported as `xr`)."""

from __future__ import annotations

import os
from typing import Any

import torch

from torch_xla._extension import _XLAC
from torch_xla._internal import persistent_cache, plugins


def set_device_type(pjrt_device: str) -> None:
    """Chooses the kind of device, as the environment variable `PJRT_DEVICE` does.

    Raises:
        RuntimeError: if another kind is in use already.
    """
    if _XLAC._xla_runtime_is_initialized() and pjrt_device.upper() != device_type():
        raise RuntimeError(
            f"the runtime already uses {device_type()}; choose {pjrt_device} before the first use "
            "of a device"
        )
    os.environ["PJRT_DEVICE"] = pjrt_device


def device_type() -> str:
    """The kind of device of this process: "CPU", "TPU", "CUDA", ... Loads no plugin."""
    return plugins.device_type()


def is_bf16_supported() -> bool:
    """Whether the device computes with bfloat16: yes, XLA does everywhere."""
    return True


def process_count() -> int:
    """Processes that run the program together."""
    return _XLAC._xla_get_num_processes()


def process_index() -> int:
    """Number of this process among them."""
    return _XLAC._xla_get_process_index()


def host_index() -> int:
    """Number of this host among those that run the program together."""
    return plugins.get(device_type()).host_index()


def local_process_count() -> int:
    """Processes of this host that run the program together."""
    return 1


def global_device_count() -> int:
    """Devices of all processes. In SPMD mode each process has one, which stands for all of its."""
    return process_count() if is_spmd() else _XLAC._xla_num_global_devices()


def local_device_count() -> int:
    """Devices of this host's processes."""
    return local_process_count() * addressable_device_count()


def addressable_device_count() -> int:
    """Devices of this process: one in SPMD mode, which stands for all."""
    return _XLAC._xla_num_devices()


def global_runtime_device_count() -> int:
    """Devices of all processes, as the plugin counts them, in SPMD mode too."""
    return len(_XLAC._xla_get_all_runtime_devices())


def addressable_runtime_device_count() -> int:
    """Devices of this process, as the plugin counts them."""
    return _XLAC._xla_num_runtime_devices()


def world_size() -> int:
    """Replicas that train together. A process that drives one device at a time is one, and so is
    one that drives all of them in SPMD mode."""
    return 1


def global_ordinal() -> int:
    """Number of this replica, from 0 to `world_size() - 1`."""
    return 0


def local_ordinal() -> int:
    """Number of this replica on its host."""
    return 0


def runtime_device_attributes(device: torch.device | str) -> dict[str, Any]:
    """What the plugin tells about a device, and its name: `{"name": "CPU:0"}`."""
    return _XLAC._xla_get_device_attributes(str(device))


def global_runtime_device_attributes() -> list[dict[str, Any]]:
    """The same for the devices of all processes, with the process of each (`process_index`)."""
    return _XLAC._xla_get_all_device_attributes()


def use_spmd(auto: bool = False) -> None:
    """Turns SPMD mode on, for the rest of the process: one program drives all devices.

    To torch there is one device from here on, `xla:0`. Its tensors lie whole on each device of the
    process, or cut over them where `torch_xla.distributed.spmd.mark_sharding` says so; XLA
    partitions every program accordingly. Calling it again does nothing. Tensors that are on `xla:0`
    already are copied to all devices, which is why it comes best before any are made.

    Args:
        auto: let XLA choose all shardings. No plugin of today can.

    Raises:
        RuntimeError: if there are tensors on other devices than `xla:0`.
        NotImplementedError: for `auto`.
    """
    if auto:
        raise NotImplementedError(
            "use_spmd(auto=True): XLA's search for shardings is in no PJRT plugin. Mark what "
            "should be cut, by mark_sharding or torch_xla.distributed.spmd.auto_policy; XLA "
            "propagates it from there"
        )
    _XLAC._xla_use_spmd()


def is_spmd() -> bool:
    """Whether SPMD mode is on; see `use_spmd`."""
    return _XLAC._xla_is_spmd()


def get_master_ip() -> str:
    """Address of the first host, where devices have one.

    Raises:
        RuntimeError: on devices that form no pod (CPU, CUDA).
    """
    raise RuntimeError(f"{device_type()} devices have no master address")


def initialize_cache(path: str, readonly: bool = False) -> None:
    """Keeps compiled programs in this folder instead of the user's own cache.

    Later processes load from it what an earlier one compiled. Programs run as native code: use only
    folders whose writers you trust. `TORCH_XLA_PERSISTENT_CACHE=0` makes this do nothing.

    Args:
        path: the folder; it is made when missing.
        readonly: use what is there, write nothing.

    Raises:
        RuntimeError: if the folder cannot be made.
    """
    persistent_cache.use(path, readonly)


def get_num_cached_compilation_graph() -> int:
    """Compiled programs kept in memory."""
    return _XLAC._xla_get_num_cached_compilation_graph()
