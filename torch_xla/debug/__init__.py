"""What happened: metrics and counters, reports of compilations, graphs as text."""

from torch_xla.debug import metrics

__all__ = ["metrics"]
