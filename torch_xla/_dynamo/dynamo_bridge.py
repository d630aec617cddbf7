"""From an FX graph to a compiled function, for callers that bring their own graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from torch_xla._dynamo.compiled import CompiledFunction

__all__ = ["extract_compiled_graph"]


def extract_compiled_graph(xla_model: fx.GraphModule, xla_args: Sequence[Any]) -> Callable:
    """A function that does what the graph does, as one program where nothing needs the host.

    Args:
        xla_model: the graph. Tensors on xla devices go into the program; ops on CPU tensors run on
            the host.
        xla_args: inputs like those of the calls to come: tensors and numbers. Other shapes make
            another program when they come.

    Returns:
        A function of the graph's inputs that returns the list of its results, without autograd
        history. It is traced in the first call.

    >>> import torch, torch_xla
    >>> class Model(torch.nn.Module):
    ...     def forward(self, x):
    ...         return (x * 2,)
    >>> x = torch.ones(2, device="xla")
    >>> compiled = extract_compiled_graph(torch.fx.symbolic_trace(Model()), (x,))
    >>> compiled(x)[0].tolist()
    [2.0, 2.0]
    """
    compiled = CompiledFunction(xla_model)
    return lambda *args: compiled(list(args))
