"""Checkpoints of sharded models, by `torch.distributed.checkpoint`.

Each part of a tensor is written once, by the process that has it, and read to wherever a later run
wants it: on another mesh, on fewer devices, on one.
"""

from torch_xla.experimental.distributed_checkpoint.export import export_safetensors
from torch_xla.experimental.distributed_checkpoint.manager import CheckpointManager
from torch_xla.experimental.distributed_checkpoint.planners import SPMDLoadPlanner, SPMDSavePlanner
from torch_xla.experimental.distributed_checkpoint.util import prime_optimizer

__all__ = [
    "CheckpointManager",
    "SPMDLoadPlanner",
    "SPMDSavePlanner",
    "export_safetensors",
    "prime_optimizer",
]
