"""What `torch.compile(backend=...)` finds under the names openxla and openxla_eval."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd

from torch_xla._dynamo.compiled import CompiledFunction


def _compile(module: fx.GraphModule, example_inputs: list[Any]) -> CompiledFunction:
    # Traced in the first call: there are no contents and no layouts yet.
    return CompiledFunction(module)


openxla = aot_autograd(fw_compiler=_compile, keep_inference_input_mutations=True)
"""Forward and backward as programs, for training and inference."""


def openxla_eval(module: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    """The graph as Dynamo took it, without AOTAutograd: for inference.

    Where gradients are asked for, the graph is traced in each call.
    """
    compiled = CompiledFunction(module)

    def run(*args: Any) -> Any:
        if torch.is_grad_enabled() and any(
            isinstance(arg, torch.Tensor) and arg.requires_grad for arg in args
        ):
            return module(*args)
        results = compiled(list(args))
        written = [args[i] for i in compiled.written_inputs()]
        torch.autograd.graph.increment_version([t for t in written if not t.is_inference()])
        return results

    return run


openxla._tags = ()
openxla_eval._tags = ("experimental",)
