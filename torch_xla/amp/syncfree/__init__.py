"""Optimizers that can throw a step away on the device, without reading a flag back."""

from torch_xla.amp.syncfree.adam import Adam
from torch_xla.amp.syncfree.adamw import AdamW
from torch_xla.amp.syncfree.sgd import SGD

__all__ = ["SGD", "Adam", "AdamW"]
