"""Small helpers of several modules."""

from __future__ import annotations

import re

_DEVICE = re.compile(r"xla(?::(\d+))?")


def parse_xla_device(device: object) -> int | None:
    """Index of an xla device given as 'xla', 'xla:1' or torch.device; None when it is no such.

    >>> parse_xla_device("xla:3")
    3
    >>> parse_xla_device("cpu") is None
    True
    """
    match = _DEVICE.fullmatch(str(device))
    return int(match.group(1) or 0) if match else None
