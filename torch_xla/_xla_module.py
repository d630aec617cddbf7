"""`torch.xla`: the device module that torch's own helpers look for by the device's name."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from torch_xla._extension import _XLAC
from torch_xla._internal.utils import parse_xla_device

Device = torch.device | str | int | None


def register() -> None:
    """Makes this module known as `torch.xla`, and xla devices known to `torch.manual_seed`."""
    if hasattr(torch, "xla"):
        return
    torch._register_device_module("xla", sys.modules[__name__])
    # torch seeds device types by name and asks only one of them, the "custom" one, for its module.
    # Its last step is therefore made to seed ours too.
    seed_custom_device = torch.random._seed_custom_device

    @functools.wraps(seed_custom_device)
    def seed_custom_and_xla(seed: int) -> None:
        seed_custom_device(seed)
        if not _is_in_bad_fork():
            manual_seed_all(seed)

    torch.random._seed_custom_device = seed_custom_and_xla


def __getattr__(name: str) -> Any:
    # Read by torch.utils.checkpoint, which saves random states of devices in use.
    if name == "_initialized":
        return _XLAC._xla_runtime_is_initialized()
    raise AttributeError(f"module 'torch.xla' has no attribute {name!r}")


def _index(device: Device) -> int:
    if device is None or device == "xla" or device == torch.device("xla"):
        return current_device()
    if isinstance(device, int):
        return device
    index = parse_xla_device(device)
    if index is None:
        raise ValueError(f"expected an xla device, got {device}")
    return index


def _name(device: Device) -> str:
    return f"xla:{_index(device)}"


# --- Devices ---


def is_available() -> bool:
    """Whether there is a plugin and at least one device."""
    try:
        return device_count() > 0
    except RuntimeError:
        return False


def is_initialized() -> bool:
    """Whether a plugin was loaded."""
    return _XLAC._xla_runtime_is_initialized()


def device_count() -> int:
    """Devices of this process."""
    return _XLAC._xla_num_devices()


def current_device() -> int:
    """Index of the calling thread's current device."""
    return _XLAC._xla_get_default_device_ordinal()


def set_device(device: Device) -> None:
    """Makes a device the calling thread's current one.

    Raises:
        RuntimeError: if there is no such device.
    """
    _XLAC._xla_set_default_device(_name(device))


class device:
    """Makes a device the current one inside a `with` block; None or -1 changes nothing."""

    def __init__(self, device: Device) -> None:
        self.idx = -1 if device is None or device == -1 else _index(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = current_device()
        if self.idx >= 0:
            set_device(self.idx)

    def __exit__(self, *exception: Any) -> None:
        set_device(self.prev_idx)


def get_device_name(device: Device = None) -> str:
    """The plugin's own name of the hardware."""
    return _XLAC._xla_device_kind(_name(device))


def get_device_properties(device: Device = None) -> dict[str, Any]:
    """What the plugin tells about a device."""
    return _XLAC._xla_get_device_attributes(_name(device))


def synchronize(device: Device = None) -> None:
    """Runs everything that was traced on a device, and waits for it."""
    _XLAC._xla_sync_live_tensors(_name(device), [], True)
    _XLAC._xla_wait_device_ops([_name(device)])


# --- Random numbers ---


def _generator(device: Device) -> torch.Generator:
    return _XLAC._default_generator(_name(device))


def manual_seed(seed: int) -> None:
    """Seeds the current device."""
    _generator(None).manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seeds all devices of this process; `torch.manual_seed` does that too. Loads no plugin."""
    _XLAC._seed_all(int(seed) & (2**64 - 1))


def seed() -> None:
    """Seeds the current device with a random number."""
    _generator(None).seed()


def seed_all() -> None:
    """Seeds all devices of this process with one random number."""
    manual_seed_all(torch.random.default_generator.seed())


def initial_seed() -> int:
    """The seed of the current device."""
    return _generator(None).initial_seed()


def get_rng_state(device: Device = "xla") -> torch.Tensor:
    """The random state of a device: a ByteTensor on CPU."""
    return _generator(device).get_state()


def set_rng_state(new_state: torch.Tensor, device: Device = "xla") -> None:
    """Restores what `get_rng_state` gave."""
    _generator(device).set_state(new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    """The random states of all devices of this process."""
    return [get_rng_state(i) for i in range(device_count())]


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Restores what `get_rng_state_all` gave."""
    for i, state in enumerate(new_states):
        set_rng_state(state, i)


# --- Autocast ---


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Types that `torch.autocast("xla")` can compute in."""
    return [torch.bfloat16, torch.float16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the device computes with bfloat16: yes, XLA does everywhere."""
    return True


# --- Memory ---


def memory_allocated(device: Device = None) -> int:
    """Bytes in use; see `torch_xla.core.xla_model.get_memory_info`."""
    return _XLAC._xla_memory_info(_name(device))["bytes_used"]


def max_memory_allocated(device: Device = None) -> int:
    """The most bytes that were in use at a time."""
    return _XLAC._xla_memory_info(_name(device))["peak_bytes_used"]


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """Bytes that are free, and bytes that there are."""
    info = _XLAC._xla_memory_info(_name(device))
    return max(info["bytes_limit"] - info["bytes_used"], 0), info["bytes_limit"]


def empty_cache() -> None:
    """Does nothing: plugins manage their memory themselves."""


# --- Streams: a device runs its programs in order, so there is one ---


def _is_in_bad_fork() -> bool:
    return _XLAC._forked_with_client()


@contextlib.contextmanager
def stream(stream: Any) -> Iterator[None]:
    """Accepts any stream; work goes to the one that there is."""
    yield
