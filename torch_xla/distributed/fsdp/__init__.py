"""Models whose parameters are cut over devices.

In SPMD mode that is `torch_xla.experimental.spmd_fully_sharded_data_parallel`; here are the
policies that say which parts of a model it wraps, and activation checkpointing for these.
"""

from torch_xla.distributed.fsdp.utils import checkpoint_module

__all__ = ["checkpoint_module"]
