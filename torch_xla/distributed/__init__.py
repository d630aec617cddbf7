"""Feeding devices."""

from torch_xla.distributed import parallel_loader

__all__ = ["parallel_loader"]
