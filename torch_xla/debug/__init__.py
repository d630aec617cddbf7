"""What happened: metrics and counters, reports of compilations, graphs as text, shape checks."""

from torch_xla.debug import metrics
from torch_xla.debug._shape_check import ShapeMismatch, check_shapes

__all__ = ["ShapeMismatch", "check_shapes", "metrics"]
