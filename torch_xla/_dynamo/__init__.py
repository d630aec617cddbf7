"""`torch.compile(..., backend="openxla")`: FX graphs as compiled programs (docs/guide/compile.md).

`stages.py` cuts a graph into what runs on the device and what the host must do, `compiled.py` turns
the device's parts into programs, `backends.py` is what torch calls. Only `config` is imported with
the package: the others need torch._dynamo.
"""

from torch_xla._dynamo import config

__all__ = ["config"]
