"""Interfaces that may still change."""

from torch_xla.experimental import plugins

__all__ = ["plugins"]
