"""`torch.autocast` for a device given as such."""

from __future__ import annotations

from typing import Any

import torch

from torch_xla._internal.utils import parse_xla_device


class autocast(torch.autocast):
    """Runs matrix products and convolutions in a narrow type, and keeps sums in float32.

    Which op runs in which type is torch's own policy for accelerators.

    Args:
        device: an xla device, by name or as `torch.device`; only its kind matters.
        enabled: False gives a block without autocast.
        dtype: `torch.bfloat16` (by default) or `torch.float16`.
        cache_enabled: whether a weight is cast once for several uses.

    Raises:
        ValueError: if `device` is no xla device.

    >>> x = torch.ones(2, 2, device="xla")
    >>> with autocast("xla"):
    ...     (x @ x).dtype
    torch.bfloat16
    """

    def __init__(
        self,
        device: torch.device | str = "xla",
        enabled: bool = True,
        dtype: torch.dtype | None = None,
        cache_enabled: bool | None = True,
    ) -> None:
        if parse_xla_device(device) is None:
            raise ValueError(f"expected an xla device, got {device}")
        super().__init__(
            "xla", dtype=dtype or torch.bfloat16, enabled=enabled, cache_enabled=cache_enabled
        )

    def __call__(self, func: Any) -> Any:
        return super().__call__(func)
