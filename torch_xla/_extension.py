"""Loads the compiled half, after checking that it was made for the torch that is installed."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

from torch_xla._build_check import require_matching_torch


def _load() -> ModuleType:
    require_matching_torch()
    extension = importlib.import_module("torch_xla._XLAC")
    # Clients of upstream import it by this name.
    sys.modules.setdefault("_XLAC", extension)
    return extension


_XLAC = _load()
