"""Where torch looks for the function that compiles FX graphs."""

from torch_xla._dynamo.dynamo_bridge import extract_compiled_graph

__all__ = ["extract_compiled_graph"]
