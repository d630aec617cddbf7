"""PyTorch on XLA devices.

Importing this package makes `torch.device('xla')` work: stock PyTorch above, any PJRT plugin below.
Nothing is loaded before the first use of a device; `PJRT_DEVICE` (CPU, TPU, CUDA, LIBRARY or a
vendor's name) says which.

Example:
    >>> import torch, torch_xla
    >>> x = torch.arange(4.0, device="xla")
    >>> y = (x * 2).sum()
    >>> torch_xla.sync()
    >>> y.item()
    12.0
"""

from torch_xla import _dynamo, _serialization, _settings, _xla_module  # noqa: F401
from torch_xla._api import (
    compile,
    device,
    device_count,
    devices,
    launch,
    manual_seed,
    real_devices,
    set_custom_compile_options,
    step,
    sync,
)
from torch_xla._extension import _XLAC
from torch_xla._internal import dynamo, optimizers, tensor_parallel
from torch_xla.version import __version__

_settings.apply()
_xla_module.register()
_serialization.register()
optimizers.register()
dynamo.register()
tensor_parallel.register()

from torch_xla import core, debug, distributed, experimental, runtime, utils  # noqa: E402
from torch_xla.core import xla_model  # noqa: E402, F401

_settings.apply_mode()

__all__ = [
    "_XLAC",
    "__version__",
    "compile",
    "core",
    "debug",
    "device",
    "device_count",
    "devices",
    "distributed",
    "experimental",
    "launch",
    "manual_seed",
    "real_devices",
    "runtime",
    "set_custom_compile_options",
    "step",
    "sync",
    "utils",
]
