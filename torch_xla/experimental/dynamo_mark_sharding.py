"""`torch.ops.xla.dynamo_mark_sharding`, under the path by which programs import it."""

from torch_xla._internal.custom_kernel import dynamo_mark_sharding, dynamo_mark_sharding_xla

__all__ = ["dynamo_mark_sharding", "dynamo_mark_sharding_xla"]
