"""Cuts an FX graph into stages: what becomes a program, and what the host does in between.

An op belongs to the host if it reads or makes CPU tensors, or was found to need values while it is
traced. A CPU tensor of one number that only device ops read is no reason to cut: it is an input of
the program. Nor are constants of the graph, and what is made from them alone.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Iterable
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from torch_xla._dynamo import draws


class Kind(enum.Enum):
    HOST = 0
    DEVICE = 1


class Stage:
    """Some nodes of a graph, in its order, as a graph of their own.

    Attributes:
        kind: who runs it.
        nodes: of the whole graph.
        inputs: nodes of the whole graph that these read.
        outputs: those of `nodes` that are read outside, whose values `module` returns as a list.
        module: the graph.
        origin: by node of `module`, the node of the whole graph.
    """

    def __init__(
        self, whole: fx.GraphModule, kind: Kind, nodes: list[fx.Node], inputs: list[fx.Node] | None
    ) -> None:
        self.kind = kind
        self.nodes = nodes
        own = set(nodes)
        read = dict.fromkeys(i for n in nodes for i in n.all_input_nodes if i not in own)
        parts = [node for node in read if _is_part_of_users(whole, node)]
        self.inputs = inputs or [node for node in read if node not in parts]
        self.outputs = [node for node in nodes if any(user not in own for user in node.users)]
        graph = fx.Graph()
        copies: dict[fx.Node, fx.Node] = {}
        for node in self.inputs:
            copies[node] = graph.placeholder(node.name)
        for node in [*parts, *nodes]:
            copies[node] = graph.node_copy(node, copies.__getitem__)
        graph.output([copies[node] for node in self.outputs])
        self.module = fx.GraphModule(whole, graph)
        self.origin = {copy: node for node, copy in copies.items()}


def split(whole: fx.GraphModule) -> list[Stage]:
    """The stages of a graph, in the order in which they run.

    Nodes that make tensors need their example values (`meta["val"]` or `meta["example_value"]`).
    """
    kinds = _kinds(whole)
    level: dict[fx.Node, int] = {}
    seen_level = write_level = draw_level = 0
    for node in whole.graph.nodes:
        if node not in kinds:
            continue
        if _is_item(node) and node.args[0] in level:
            level[node] = level[node.args[0]]
            continue
        kind = kinds[node]
        lowest = write_level
        if _writes(node):
            # What came before reads what is there before, what comes after what is there after.
            lowest = seen_level
        if _draws(node):
            lowest = max(lowest, draw_level)
        for operand in node.all_input_nodes:
            lowest = max(lowest, level.get(operand, 0))
        if kind is not None and lowest % 2 != kind.value:
            lowest += 1
        level[node] = lowest
        seen_level = max(seen_level, lowest)
        if _writes(node):
            write_level = lowest
        if _draws(node):
            draw_level = lowest
    return [
        Stage(whole, Kind(n % 2), [node for node in level if level[node] == n], None)
        for n in sorted(set(level.values()))
    ]


def split_at(whole: fx.GraphModule, stage: Stage, node: fx.Node) -> list[Stage]:
    """The same stage, with one node of it left to the host."""
    at = stage.nodes.index(node)
    # Which of several results is meant is said by nodes of their own.
    items = [n for n in stage.nodes[at:] if _is_item(n) and n.args[0] is node]
    parts = [
        (Kind.DEVICE, stage.nodes[:at]),
        (Kind.HOST, [node, *items]),
        (Kind.DEVICE, [n for n in stage.nodes[at + 1 :] if n not in items]),
    ]
    return [Stage(whole, kind, nodes, None) for kind, nodes in parts if nodes]


def value_of(node: fx.Node) -> Any:
    """A node's example value."""
    return node.meta["val"] if "val" in node.meta else node.meta.get("example_value")


def tensors_of(nodes: Iterable[fx.Node]) -> list[torch.Tensor]:
    """All tensors among the example values of nodes."""
    leaves = pytree.tree_leaves([value_of(node) for node in nodes])
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _kinds(whole: fx.GraphModule) -> dict[fx.Node, Kind | None]:
    """Who runs each call; None for those without tensors, which anybody can run."""
    constant = _made_from_constants(whole)
    everywhere = {t.device: None for t in tensors_of(whole.graph.nodes) if t.device.type == "xla"}
    main = next(iter(everywhere), None)
    kinds: dict[fx.Node, Kind | None] = {}
    for node in whole.graph.nodes:
        if node.op in ("placeholder", "output", "get_attr"):
            continue
        made = tensors_of([node])
        read = tensors_of(n for n in node.all_input_nodes if n not in constant)
        if _needs_the_host(node):
            kinds[node] = Kind.HOST
        elif node in constant or node.target in draws.ON_DEVICE:
            kinds[node] = Kind.DEVICE
        elif any(tensor.device.type == "cpu" for tensor in made) or any(
            tensor.device.type == "cpu" and not _is_number(tensor) for tensor in read
        ):
            kinds[node] = Kind.HOST
        elif any(tensor.device.type == "xla" and tensor.device != main for tensor in made + read):
            kinds[node] = Kind.HOST  # a program runs on one device
        else:
            kinds[node] = Kind.DEVICE if made or read else None
    return kinds


def _made_from_constants(whole: fx.GraphModule) -> set[fx.Node]:
    """CPU tensors that are the same in each call and that only device ops read in the end."""
    constant: set[fx.Node] = set()
    for node in whole.graph.nodes:
        if node.op == "get_attr":
            value = _attribute(whole, node)
            if isinstance(value, torch.Tensor) and value.device.type == "cpu":
                constant.add(node)
        elif (
            node.op == "call_function"
            and tensors_of([node])
            and all(tensor.device.type == "cpu" for tensor in tensors_of([node]))
            and all(operand in constant for operand in node.all_input_nodes)
            and isinstance(node.target, torch._ops.OpOverload)
            and not _draws(node)
            and not _writes(node)
        ):
            constant.add(node)
    for node in reversed(whole.graph.nodes):
        if node in constant and any(
            user.op == "output"
            or _writes(user)
            or (
                user not in constant
                and any(tensor.device.type == "cpu" for tensor in tensors_of([user]))
            )
            for user in node.users
        ):
            constant.discard(node)
    return constant


def _attribute(whole: fx.GraphModule, node: fx.Node) -> Any:
    return operator.attrgetter(node.target)(whole)


def _is_part_of_users(whole: fx.GraphModule, node: fx.Node) -> bool:
    """Attributes that are no tensors on a device go with every stage that reads them."""
    if node.op != "get_attr":
        return False
    value = _attribute(whole, node)
    return not (isinstance(value, torch.Tensor) and value.device.type == "xla")


def _is_number(tensor: torch.Tensor) -> bool:
    return tensor.dim() == 0 and not tensor.is_complex()


def _is_item(node: fx.Node) -> bool:
    if node.target is not operator.getitem:
        return False
    return not isinstance(value_of(node.args[0]), torch.Tensor)


def _needs_the_host(node: fx.Node) -> bool:
    """Ops that set or read random states: a program draws from the state, but does not change it
    otherwise."""
    name = getattr(node.target, "__name__", str(node.target))
    return "rng_state" in name or "seed" in name


def _writes(node: fx.Node) -> bool:
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return target._schema.is_mutable
    if isinstance(target, torch._ops.HigherOrderOperator):
        return True
    if node.op == "call_module":
        return True
    # A graph that was not functionalized: calls of torch's Python interface.
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    if target in (operator.setitem,) or name.startswith("__i") or "out" in node.kwargs:
        return True
    return name.endswith("_") and not name.endswith("__")


def _draws(node: fx.Node) -> bool:
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return torch.Tag.nondeterministic_seeded in target.tags
    return getattr(target, "__module__", "") != "_operator"
