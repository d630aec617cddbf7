"""`xla_model` and what belongs to it."""

from torch_xla.core import xla_env_vars, xla_model

__all__ = ["xla_env_vars", "xla_model"]
