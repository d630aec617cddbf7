"""What a step's Python can reach, kept so that it can be put back.

For rehearsals of a step (`torch_xla._internal.rehearsal`): they run its body once more than the
user calls it. Contents of xla tensors are not kept here: csrc/lazy/rehearsal.h does that.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import random
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

import torch
import torch.utils.data

# Larger tensors on CPU are data that a step reads, not state that it counts with.
_MOST_BYTES = 1 << 20
# Past these a step is not for rehearsals: all that it reaches is looked at each time.
_MOST_PLACES = 100_000
_MOST_BYTES_IN_ALL = 1 << 28
_PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.Size)
_LOCKS = (type(threading.Lock()), type(threading.RLock()), threading.Condition)
_MISSING = object()


class TooMuch(Exception):
    """More can be reached than is worth keeping."""


class Snapshot:
    """The state reachable from some objects, as it is now.

    Variables of closures, globals that functions name, attributes of instances, items of
    containers; gradients, flags and versions of tensors, contents of small ones on CPU; generators.
    Not objects that other threads share (those that hold a lock; data loaders, data sets and
    samplers), Python modules, classes, and what C extensions keep to themselves.

    Raises:
        TooMuch: nothing is kept.

    >>> counts = [1, 2]
    >>> snapshot = Snapshot([counts])
    >>> counts.append(3)
    >>> snapshot.restore()
    >>> counts
    [1, 2]
    """

    def __init__(self, roots: list[Any]) -> None:
        self._undo: list[functools.partial[None]] = []
        self._tensors: list[torch.Tensor] = []
        self._versions: list[int] = []
        self._aliases: dict[int, torch.Tensor] = {}  # by id, of xla tensors
        self._seen: dict[int, Any] = {}  # by id, which the object itself keeps from being reused
        self._containers: list[tuple[Any, Any]] = []  # and a copy of each
        self._pending: list[Any] = []
        self._bytes = 0
        self._shared = _shared_classes()
        self._keep_random_state()
        self._visit(roots)
        while self._pending:
            self._visit(self._pending.pop())
            if len(self._seen) > _MOST_PLACES or self._bytes > _MOST_BYTES_IN_ALL:
                raise TooMuch(
                    f"it reaches more than {_MOST_PLACES} objects, or {_MOST_BYTES_IN_ALL >> 20} "
                    "MiB of small tensors on the host"
                )

    def restore(self) -> None:
        """Puts everything back. To be called once."""
        for container, copy in self._containers:
            _put_back(container, copy)
        for undo in reversed(self._undo):
            undo()
        torch._C._autograd._unsafe_set_version_counter(self._tensors, self._versions)

    def dropped(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Xla tensors that Python has only here any more, each with an alias, which is here too."""
        held = collections.Counter(self._seen.keys())
        held.update(map(id, self._tensors))
        for _, copy in self._containers:
            held.update(map(id, copy.values() if isinstance(copy, dict) else copy))
        for undo in self._undo:
            held.update(map(id, undo.args))
        for index, alias in self._aliases.items():
            # Its argument is one more.
            if sys.getrefcount(self._seen[index]) <= held[index] + 1:
                yield self._seen[index], alias

    # --- What is kept ---

    def _keep_random_state(self) -> None:
        self._undo.append(functools.partial(torch.set_rng_state, torch.get_rng_state()))
        self._undo.append(functools.partial(random.setstate, random.getstate()))
        if (numpy := sys.modules.get("numpy")) is not None:
            self._undo.append(functools.partial(numpy.random.set_state, numpy.random.get_state()))

    def _visit(self, thing: Any) -> None:
        if isinstance(thing, _PLAIN) or id(thing) in self._seen:
            return
        self._seen[id(thing)] = thing
        if isinstance(thing, torch.Tensor):
            self._keep_tensor(thing)
        elif isinstance(thing, dict | list | set | collections.deque):
            self._keep_container(thing)
        elif isinstance(thing, tuple | frozenset):
            self._later(thing)
        elif isinstance(thing, torch.Generator):
            self._undo.append(functools.partial(thing.set_state, thing.get_state()))
        elif isinstance(thing, random.Random):
            self._undo.append(functools.partial(thing.setstate, thing.getstate()))
        elif (numpy := sys.modules.get("numpy")) and isinstance(thing, numpy.random.Generator):
            bits = thing.bit_generator
            self._undo.append(functools.partial(setattr, bits, "state", bits.state))
        elif numpy and isinstance(thing, numpy.random.RandomState):
            self._undo.append(functools.partial(thing.set_state, thing.get_state()))
        elif isinstance(thing, types.FunctionType):
            self._keep_function(thing)
        elif isinstance(thing, types.MethodType):
            self._later((thing.__func__, thing.__self__))
        elif isinstance(thing, functools.partial):
            self._later((thing.func, thing.args, thing.keywords))
        elif not isinstance(thing, type | types.ModuleType):
            self._keep_instance(thing)

    def _later(self, things: Any) -> None:
        self._pending.extend(thing for thing in things if not isinstance(thing, _PLAIN))

    def _keep_tensor(self, tensor: torch.Tensor) -> None:
        self._later(vars(tensor).values())
        if not tensor.is_inference():
            self._tensors.append(tensor)
            self._versions.append(tensor._version)
        if tensor.is_leaf:
            self._undo.append(
                functools.partial(_restore_leaf, tensor, tensor.grad, tensor.requires_grad)
            )
            self._later((tensor.grad,))
        if tensor.device.type == "cpu" and tensor.layout == torch.strided:
            if tensor.nbytes <= _MOST_BYTES:
                self._bytes += tensor.nbytes
                self._undo.append(functools.partial(_copy, tensor, tensor.detach().clone()))
        elif tensor.device.type == "xla":
            alias = self._aliases[id(tensor)] = tensor.detach()
            self._undo.append(functools.partial(_restore_memory, tensor, alias))

    def _keep_container(self, container: Any) -> None:
        copy = dict(container) if isinstance(container, dict) else list(container)
        self._containers.append((container, copy))
        if isinstance(container, dict):
            self._later(copy.keys())
            self._later(copy.values())
        else:
            self._later(copy)

    def _keep_function(self, function: types.FunctionType) -> None:
        for cell in function.__closure__ or ():
            try:
                contents = cell.cell_contents
            except ValueError:  # empty
                self._undo.append(functools.partial(_empty, cell))
                continue
            self._undo.append(functools.partial(setattr, cell, "cell_contents", contents))
            self._later((contents,))
        self._later((function.__dict__,))
        if (function.__module__ or "").split(".")[0] in ("torch", "torch_xla"):
            return  # their globals are no state of the user's
        self._later((function.__defaults__, function.__kwdefaults__))
        for name in _global_names(function.__code__):
            value = function.__globals__.get(name, _MISSING)
            self._undo.append(functools.partial(_set_global, function.__globals__, name, value))
            self._later((value,))

    def _keep_instance(self, instance: Any) -> None:
        if isinstance(instance, self._shared):
            return
        try:
            attributes = object.__getattribute__(instance, "__dict__")
        except AttributeError:
            return
        if any(isinstance(value, _LOCKS) for value in attributes.values()):
            return
        self._visit(attributes)


def _shared_classes() -> tuple[type, ...]:
    """Of what reads data: a rehearsal runs while its threads go on."""
    data = torch.utils.data
    classes = [data.DataLoader, data.Dataset, data.Sampler, data.dataloader._BaseDataLoaderIter]
    if (loaders := sys.modules.get("torch_xla.distributed.parallel_loader")) is not None:
        classes += [loaders.ParallelLoader, loaders.MpDeviceLoader, loaders.PerDeviceLoader]
    return tuple(classes)


def _global_names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _global_names(constant)


def _put_back(container: Any, copy: Any) -> None:
    """Leaves a container alone that is as it was: others may hold iterators over it."""
    if isinstance(container, dict):
        for key in [key for key in container if key not in copy]:
            del container[key]
        if _same(container.keys(), copy.keys()):
            for key, value in copy.items():
                if container[key] is not value:
                    container[key] = value
            return
        container.clear()
        container.update(copy)
    elif not _same(container, copy):
        container.clear()
        (container.update if isinstance(container, set) else container.extend)(copy)


def _same(a: Any, b: Any) -> bool:
    return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))


def _empty(cell: types.CellType) -> None:
    with contextlib.suppress(ValueError):
        del cell.cell_contents


def _set_global(variables: dict[str, Any], name: str, value: Any) -> None:
    if value is not _MISSING:
        variables[name] = value
    else:
        variables.pop(name, None)


def _restore_leaf(tensor: torch.Tensor, grad: torch.Tensor | None, requires_grad: bool) -> None:
    if tensor.is_leaf and tensor.requires_grad != requires_grad:
        tensor.requires_grad_(requires_grad)
    if tensor.grad is not grad:
        tensor.grad = grad


def _restore_memory(tensor: torch.Tensor, alias: torch.Tensor) -> None:
    """`tensor.data = ...` and `set_` gave it other memory, or another shape."""
    if (
        tensor.data_ptr() != alias.data_ptr()
        or tensor.dtype != alias.dtype
        or tensor.size() != alias.size()
        or tensor.stride() != alias.stride()
    ):
        tensor.data = alias


def _copy(tensor: torch.Tensor, contents: torch.Tensor) -> None:
    with torch.no_grad():
        tensor.copy_(contents)
