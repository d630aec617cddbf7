"""FX graphs that are traced once and launched from then on."""

from __future__ import annotations

import collections
import logging
import re
from pathlib import Path
from typing import Any

import torch
from torch import fx

from torch_xla._dynamo import config, draws, stages
from torch_xla._extension import _XLAC

_logger = logging.getLogger("torch_xla.dynamo")
_TENSOR = object()
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')


class CompiledFunction:
    """A graph as a function of the list of its inputs, which it empties (torch's "boxed" calls).

    Args:
        module: the graph. Its nodes have example values, or get them in the first call.

    A call runs on the device what the inputs' devices put there, and on the host the rest. Results
    carry no autograd history.
    """

    def __init__(self, module: fx.GraphModule) -> None:
        self._module = module
        self._plan: _Plan | None = None
        self._launch: Any = None  # of the whole graph, with inputs as in the last call
        self._boxed_call = True

    def __call__(self, args: list[Any]) -> list[Any]:
        if self._launch is not None:
            results = self._launch(args)
            if results is not None:
                args.clear()
                return results
        return self._run(args)

    def _run(self, args: list[Any]) -> list[Any]:
        args[:] = [_plain(arg) for arg in args]
        if self._plan is None:
            _ensure_example_values(self._module, args)
            draws.use_on_device(self._module)
            self._plan = _Plan(self._module)
        results = self._plan.run(args)
        self._launch = self._plan.direct_launch()
        return results

    def written_inputs(self) -> list[int]:
        """Which inputs the graph may write to; empty before the first call."""
        return self._plan.written_inputs() if self._plan else []


def _plain(arg: Any) -> Any:
    """A tensor without the view of its parts (`XLAShardedTensor`), which torch's checks refuse."""
    if isinstance(arg, torch.Tensor) and type(arg) is not torch.Tensor and arg.is_xla:
        return arg.as_subclass(torch.Tensor)
    return arg


class _Plan:
    """The stages of a graph, and which values each takes and leaves."""

    def __init__(self, whole: fx.GraphModule) -> None:
        self._whole = whole
        self._placeholders = [n for n in whole.graph.nodes if n.op == "placeholder"]
        (self._output,) = (n for n in whole.graph.nodes if n.op == "output")
        self._attributes = {
            node: stages._attribute(whole, node)
            for node in whole.graph.nodes
            if node.op == "get_attr"
        }
        self._set_stages(stages.split(whole))

    def _set_stages(self, parts: list[stages.Stage]) -> None:
        if len(parts) == 1 and parts[0].kind is stages.Kind.DEVICE and self._returns(parts[0]):
            # The whole graph, with its own inputs in their order.
            tensors = [n for n in parts[0].inputs if n.op == "get_attr"]
            whole = stages.Stage(
                self._whole, parts[0].kind, parts[0].nodes, [*self._placeholders, *tensors]
            )
            parts = [whole]
        self._stages = [_Program(s) if s.kind is stages.Kind.DEVICE else _Host(s) for s in parts]

    def _returns(self, stage: stages.Stage) -> bool:
        return self._output.args[0] in (stage.outputs, tuple(stage.outputs))

    def run(self, args: list[Any]) -> list[Any]:
        values = {**self._attributes, **dict(zip(self._placeholders, args, strict=True))}
        args.clear()
        at = 0
        while at < len(self._stages):
            part = self._stages[at]
            try:
                results = part.run([values[node] for node in part.stage.inputs])
            except _NeedsTheHost as need:
                _logger.info("%s runs on the host: %s", need.node.format_node(), need)
                parts = stages.split_at(self._whole, part.stage, need.node)
                self._stages[at : at + 1] = [
                    _Program(s) if s.kind is stages.Kind.DEVICE else _Host(s) for s in parts
                ]
                continue
            values.update(zip(part.stage.outputs, results, strict=True))
            at += 1
            for node in self._dead_after(at):
                values.pop(node, None)
        results = fx.node.map_arg(self._output.args[0], values.__getitem__)
        return list(results) if isinstance(results, (list, tuple)) else results

    def _dead_after(self, at: int) -> list[fx.Node]:
        """What neither the stages from `at` on nor the results read."""
        read = set(self._output.all_input_nodes)
        for part in self._stages[at:]:
            read.update(part.stage.inputs)
        return [n for n in self._stages[at - 1].stage.inputs if n not in read]

    def direct_launch(self) -> Any:
        """What launches the whole graph from its inputs, if one program is all of it."""
        if len(self._stages) != 1 or not isinstance(self._stages[0], _Program):
            return None
        program = self._stages[0]
        if program.stage.inputs != self._placeholders or not self._returns(program.stage):
            return None
        return program.direct_launch()

    def written_inputs(self) -> list[int]:
        written: set[fx.Node] = set()
        for part in self._stages:
            written.update(part.written_inputs())
        return [i for i, node in enumerate(self._placeholders) if node in written]


class _Host:
    """A stage that runs as it stands, in torch."""

    def __init__(self, stage: stages.Stage) -> None:
        self.stage = stage

    def run(self, args: list[Any]) -> list[Any]:
        return self.stage.module(*args)

    def written_inputs(self) -> list[fx.Node]:
        return [
            operand
            for node in self.stage.nodes
            if stages._writes(node)
            for operand in node.all_input_nodes
        ]


class _NeedsTheHost(Exception):
    """An op could not be traced without contents."""

    def __init__(self, node: fx.Node, reason: str) -> None:
        super().__init__(reason)
        self.node = node


class _Program:
    """A stage that is launched; one program for each set of shapes and numbers among its inputs."""

    def __init__(self, stage: stages.Stage) -> None:
        self.stage = stage
        self._graphs: collections.OrderedDict[Any, list[tuple[Any, list[Any] | None]]] = (
            collections.OrderedDict()
        )
        self._last: tuple[Any, Any, list[Any] | None] = (None, None, None)

    def run(self, args: list[Any]) -> list[Any]:
        if _XLAC._xla_is_spmd():  # how a launched program's inputs would be cut is not known
            return self.stage.module(*args)
        tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
        key = tuple((type(arg), arg) for arg in args if not isinstance(arg, torch.Tensor))
        candidates = self._graphs.setdefault(key, [])
        for graph, others in candidates:
            results = graph.run(tensors)
            if results is not None:
                self._last = (key, graph, others)
                return _merge(results, others)
            if graph.may_be_out_of_bounds(tensors):
                return self.stage.module(*args)  # for the error, if it is one
        graph, others = self._capture(args, tensors)
        candidates.insert(0, (graph, others))
        while sum(map(len, self._graphs.values())) > config.most_programs:
            oldest = next(iter(self._graphs))
            self._graphs[oldest].pop()
            if not self._graphs[oldest]:
                del self._graphs[oldest]
        self._last = (key, graph, others)
        results = graph.run(tensors)
        return self.stage.module(*args) if results is None else _merge(results, others)

    def direct_launch(self) -> Any:
        """Launches what the last call launched, from a list of tensors."""
        key, graph, others = self._last
        return graph.run if graph is not None and not key and others is None else None

    def written_inputs(self) -> list[fx.Node]:
        graph = self._last[1]
        tensors = [n for n in self.stage.inputs if stages.tensors_of([n])]
        return [tensors[i] for i in graph.written_inputs] if graph is not None else []

    def _capture(self, args: list[Any], tensors: list[torch.Tensor]) -> tuple[Any, Any]:
        interpreter = _Interpreter(self.stage.module)
        capture = _XLAC._Capture(self._device(tensors), tensors, id(self))
        try:
            stand_ins = iter(capture.stand_ins)
            inputs = [next(stand_ins) if isinstance(a, torch.Tensor) else a for a in args]
            results = interpreter.run(*inputs)
            graph = capture.finish([r for r in results if isinstance(r, torch.Tensor)])
        except Exception as error:
            node = self.stage.origin.get(interpreter.current)
            if node not in self.stage.nodes:
                raise
            reason = str(error).partition("\n")[0]
        else:
            _logger.debug("captured a graph of %d nodes", len(self.stage.nodes))
            others = [_TENSOR if isinstance(r, torch.Tensor) else r for r in results]
            return graph, others if any(other is not _TENSOR for other in others) else None
        finally:
            _XLAC._set_location("")
            capture.cancel()
        raise _NeedsTheHost(node, reason)

    def _device(self, tensors: list[torch.Tensor]) -> str:
        for tensor in [*tensors, *stages.tensors_of(self.stage.nodes)]:
            if tensor.device.type == "xla":
                return str(tensor.device)
        return "xla"


class _Interpreter(fx.Interpreter):
    """Remembers which node it is at, and gives what it makes the node's Python line."""

    current: fx.Node | None = None

    def run_node(self, node: fx.Node) -> Any:
        self.current = node if node.op != "output" else None
        _XLAC._set_location(_place(node))
        return super().run_node(node)


def _place(node: fx.Node) -> str:
    """The innermost line of the user's that a node stands for: "forward@model.py:12"."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    if not frames:
        return ""
    path, line, function = frames[-1]
    return f"{function}@{Path(path).name}:{line}"


def _merge(results: list[torch.Tensor], others: list[Any] | None) -> list[Any]:
    if others is None:
        return results
    remaining = iter(results)
    return [next(remaining) if other is _TENSOR else other for other in others]


def _ensure_example_values(module: fx.GraphModule, args: list[Any]) -> None:
    """Graphs that no compiler of torch's made have none."""
    if any("val" in node.meta or "example_value" in node.meta for node in module.graph.nodes):
        return
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp

    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        FakeTensorProp(module, mode).propagate(*args)
