"""Automatic mixed precision."""

from torch_xla.amp.autocast_mode import autocast
from torch_xla.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast"]
