"""What the environment says, read once when the package is imported.

| variable | meaning | default |
|---|---|---|
| `PJRT_DEVICE`, `PJRT_LIBRARY_PATH`, `CPU_NUM_DEVICES` | see `torch_xla._internal.plugins` | |
| `TORCH_XLA_PERSISTENT_CACHE` | keep compiled programs for later processes; 0 is final | 1 |
| `XLA_PERSISTENT_CACHE_PATH` | in this folder | see `torch_xla._internal.persistent_cache` |
| `XLA_PERSISTENT_CACHE_READ_ONLY` | write nothing into it | 0 |
| `TORCH_XLA_PERSISTENT_CACHE_MIB` | its greatest size; least recently used programs leave | 2048 |
| `TORCH_XLA_PERSISTENT_CACHE_MIN_SECONDS` | programs that compile faster are not written | 0.1; 0 \
in a folder that is named |
| `XLA_COMPILATION_CACHE_SIZE` | compiled programs kept in memory | 2048 |
| `XLA_IR_DEBUG` | printed graphs name each node's Python line | 0 |
| `TORCH_XLA_LOCATIONS` | record Python lines at all (they also stand in error messages) | 1 |
| `PT_XLA_DEBUG`, `PT_XLA_DEBUG_LEVEL` | report each compilation (level 1 and up) | 0 |
| `PT_XLA_DEBUG_FILE` | where these reports go | standard error |
| `PT_XLA_DEBUG_MAX_FRAME` | Python frames a report shows | 8 |
| `TORCH_XLA_CPU_KERNELS` | programs for CPU run torch's own kernels where faster than XLA's | 1 |
| `TORCH_XLA_CHECK_VALUES` | programs look at indices, classes and probabilities that the device \
computed, and fail when they are out of range | 1 |
| `TORCH_XLA_WARN_REPLICATED_MIB` | in SPMD mode, warn of tensors of this size that an operation \
needs whole on each device; 0: never | 64 |
| `TORCH_XLA_SHARDY` | programs say shardings in Shardy's words (1) or in GSPMD's (0), which older \
plugins read | by the plugin's version of StableHLO |
| `XLA_USE_SPMD` | SPMD mode from the start; not in processes that this one starts | 0 |
| `TORCH_XLA_CHECK_SHAPES` | check every operator's results against torch's own rules | 0 |
"""

from __future__ import annotations

import atexit
import multiprocessing
import sys
from pathlib import Path

import torch

from torch_xla._extension import _XLAC
from torch_xla._internal import persistent_cache, plugins
from torch_xla.debug import _compile_report, check_shapes
from torch_xla.utils.utils import check_env_flag, getenv_as


def apply() -> None:
    """Hands the settings to the compiled half. Loads no plugin."""
    _XLAC._set_runtime_configurator(plugins.configure)
    _XLAC._install_locations(
        [str(Path(module.__file__).parent) for module in (torch, sys.modules["torch_xla"])]
    )
    _XLAC._set_record_locations(check_env_flag("TORCH_XLA_LOCATIONS", "1"))
    _XLAC._set_ir_debug(check_env_flag("XLA_IR_DEBUG"))
    _XLAC._set_cache_capacity(getenv_as("XLA_COMPILATION_CACHE_SIZE", int, 2048))
    _XLAC._set_cpu_kernels("faster" if check_env_flag("TORCH_XLA_CPU_KERNELS", "1") else "never")
    _XLAC._set_check_values(check_env_flag("TORCH_XLA_CHECK_VALUES", "1"))
    _XLAC._set_replication_warning(
        int(getenv_as("TORCH_XLA_WARN_REPLICATED_MIB", float, 64) * 2**20)
    )
    if getenv_as("TORCH_XLA_SHARDY", str) is not None:
        _XLAC._set_shardy(check_env_flag("TORCH_XLA_SHARDY"))
    persistent_cache.configure(
        check_env_flag("TORCH_XLA_PERSISTENT_CACHE", "1"),
        getenv_as("XLA_PERSISTENT_CACHE_PATH", str, ""),
        check_env_flag("XLA_PERSISTENT_CACHE_READ_ONLY"),
        getenv_as("TORCH_XLA_PERSISTENT_CACHE_MIB", float, 2048),
        getenv_as("TORCH_XLA_PERSISTENT_CACHE_MIN_SECONDS", float),
    )
    level = getenv_as("PT_XLA_DEBUG_LEVEL", int, 1 if check_env_flag("PT_XLA_DEBUG") else 0)
    if level > 0:
        _compile_report.enable(
            getenv_as("PT_XLA_DEBUG_FILE", str, ""), getenv_as("PT_XLA_DEBUG_MAX_FRAME", int, 8)
        )
    if check_env_flag("TORCH_XLA_CHECK_SHAPES"):
        check_shapes().__enter__()  # for good, in the thread that imports, and its backwards
    atexit.register(_finish)


def apply_mode() -> None:
    """`XLA_USE_SPMD`, which loads the plugin.

    Processes that this one starts, such as the workers of a DataLoader, see the same environment
    and want no device.
    """
    if check_env_flag("XLA_USE_SPMD") and multiprocessing.parent_process() is None:
        _XLAC._xla_use_spmd()


def _finish() -> None:
    """Lets launched programs end before the process does: plugins keep threads of their own."""
    if _XLAC._xla_runtime_is_initialized() and not _XLAC._forked_with_client():
        _XLAC._xla_wait_device_ops()
