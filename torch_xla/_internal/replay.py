"""`torch_xla.compile(f, replay=True)`: steps that are launched again without running `f`.

The compiled half (csrc/lazy/replay.h) finds out what a step reads and writes. Here is decided when
a call is the same step as an earlier one: the guards.
"""

from __future__ import annotations

import collections
import functools
import logging
import types
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_xla._extension import _XLAC
from torch_xla._internal import steps

_logger = logging.getLogger("torch_xla.replay")
_MOST_STEPS = 16  # with guards of their own, for one function
_MOST_PLACES = 10_000
_TENSOR = object()
_NUMBERS = frozenset((bool, int, float, str, type(None)))
_DICTS = frozenset((dict, collections.OrderedDict))
_MOST_ATTEMPTS = 4  # at recording one of them, before it is traced for good


class _Step:
    """A function under one set of guards: being recorded, replayed, or traced for good."""

    def __init__(self) -> None:
        self.replay: Any = None
        self.last_call: tuple[Any, Any] | None = None  # (recorded call, its other results)
        self.spec: Any = None  # of the results
        self.others: list[Any] = []  # results that are no xla tensors, _TENSOR for those
        self.attempts = 0
        self.reason = ""


class Replayer:
    """Calls `run` to trace a step, or launches it as it was recorded.

    Args:
        f: the function. The guards watch what it sees beside its arguments: variables of its
            closure, globals that it names, attributes of its object, and the modules and
            optimizers among all of these.
        run: calls `f` and syncs before and after.
    """

    def __init__(self, f: Callable, run: Callable) -> None:
        self._f = f
        self._run = run
        self._places = _places(f)
        self._steps: collections.OrderedDict[Any, _Step] = collections.OrderedDict()
        self.reason = ""  # why the last call was traced

    def __call__(self, args: tuple, kwargs: dict) -> Any:
        leaves, spec = pytree.tree_flatten((args, kwargs))
        tensors = [leaf for leaf in leaves if _is_xla(leaf)]
        try:
            guards = (spec, self._guards(leaves))
            hash(guards)
        except TypeError:
            return self._trace(args, kwargs, "an argument cannot be compared")
        step = self._steps.get(guards)
        if step is None:
            step = self._steps[guards] = _Step()
            if len(self._steps) > _MOST_STEPS:
                self._steps.popitem(last=False)
        else:
            self._steps.move_to_end(guards)
        if step.replay is not None:
            steps.run_waiting_closures()
            results, reason = step.replay.run(tensors)
            if results is not None:
                self.reason = ""
                step.attempts = 0
                return _restore(step, results)
            step.replay = step.last_call = None
        else:
            reason = ""
        if step.attempts >= _MOST_ATTEMPTS:
            return self._trace(args, kwargs, step.reason)
        return self._record(step, tensors, args, kwargs, reason)

    def _trace(self, args: tuple, kwargs: dict, reason: str) -> Any:
        self._say(reason)
        return self._run(*args, **kwargs)

    def _record(
        self, step: _Step, tensors: list[torch.Tensor], args: tuple, kwargs: dict, why: str
    ) -> Any:
        steps.mark()  # so that the recording holds the step's own program only
        closures = steps.closures_run()
        try:
            recorded = _XLAC._RecordedCall(_XLAC._xla_get_default_device(), tensors)
        except RuntimeError:  # inside another step, or beside one in another thread
            return self._trace(args, kwargs, "another step is being recorded")
        results = None
        try:
            results = self._run(*args, **kwargs)
            added = steps.closures_run() != closures
        finally:
            leaves, spec = pytree.tree_flatten(results)
            recorded.finish([leaf for leaf in leaves if _is_xla(leaf)])
        others = [_TENSOR if _is_xla(leaf) else leaf for leaf in leaves]
        reason = ""
        if added:
            reason = "it adds step closures"
        elif any(isinstance(other, torch.Tensor) for other in others):
            reason = "it returns a tensor that is not on the device"
        elif step.last_call is not None:
            before, others_before, spec_before = step.last_call
            if spec != spec_before or not _same(others, others_before):
                reason = "it returns other things each time"
            else:
                step.replay, reason = _XLAC._make_replay(before, recorded)
        if step.last_call is not None:
            # State that the first call creates makes that one different; it costs no attempt.
            step.attempts += 1
        step.last_call = None if step.replay is not None else (recorded, others, spec)
        step.spec, step.others, step.reason = spec, others, reason or ""
        self._say(why or step.reason or "it is being recorded")
        if step.attempts >= _MOST_ATTEMPTS and step.replay is None:
            step.last_call = None
            _logger.warning(
                "torch_xla.compile(replay=True): %s is traced at every call: %s",
                getattr(self._f, "__qualname__", self._f),
                step.reason,
            )
        return results

    def _say(self, reason: str) -> None:
        self.reason = reason
        if reason:
            _logger.info("torch_xla.compile(replay=True): traced, because %s", reason)

    def _guards(self, leaves: list[Any]) -> tuple:
        return (
            tuple(_guard(leaf) for leaf in leaves),
            tuple(_guard_place(place()) for place in self._places),
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            torch.is_autocast_enabled("xla"),
            torch.get_autocast_dtype("xla"),
            _XLAC._xla_get_default_device(),
        )


def _is_xla(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.device.type == "xla"


def _guard(leaf: Any) -> Any:
    """What must be equal for an argument of two calls of one step."""
    if isinstance(leaf, torch.Tensor):
        if leaf.device.type != "xla":
            raise TypeError("a tensor on another device")  # its contents are part of the program
        return (tuple(leaf.shape), leaf.stride(), leaf.dtype, leaf.device, leaf.requires_grad)
    if not hasattr(leaf, "__dict__"):
        return _guard_place(leaf)
    return (id(leaf), *(_guard_place(place()) for place in _places(leaf)))


def _guard_place(value: Any) -> Any:
    """What must be equal for a value that a step sees: numbers and text themselves, of optimizers
    their options, of anything else which object it is."""
    if _is_simple(value):
        return (type(value), value)
    if isinstance(value, torch.Tensor):
        # Contents on the device are inputs of the program, contents on the host are numbers in it.
        return (id(value), None if _is_xla(value) else value._version)
    if isinstance(value, tuple):
        return tuple(map(_guard_place, value))
    if isinstance(value, torch.optim.Optimizer):
        return (id(value), *(_guard_group(group) for group in value.param_groups))
    return id(value)


def _guard_group(group: dict[str, Any]) -> tuple:
    options = tuple(
        (name, _guard_place(value)) for name, value in group.items() if name != "params"
    )
    return (len(group["params"]), *options)


def _places(f: Any) -> list[Callable[[], Any]]:
    """Where a function finds what it is not given: each entry tells what is there now."""
    places: list[Callable[[], Any]] = []
    seen: set[int] = set()
    pending = [f]
    while pending and len(places) < _MOST_PLACES:
        value = pending.pop()
        if id(value) in seen or isinstance(value, (type, types.ModuleType, torch.Tensor)):
            continue
        seen.add(id(value))
        found: list[Callable[[], Any]] = []
        if isinstance(value, torch.nn.Module):
            places.append(functools.partial(_module_state, value))
        elif isinstance(value, torch.optim.Optimizer):
            places.append(functools.partial(_itself, value))
        elif isinstance(value, types.MethodType):
            pending += [value.__func__, value.__self__]
        elif isinstance(value, functools.partial):
            pending += [value.func, *value.args, *value.keywords.values()]
        elif isinstance(value, types.FunctionType):
            found += [functools.partial(_in_cell, cell) for cell in value.__closure__ or ()]
            found += [
                functools.partial(value.__globals__.get, name)
                for name in value.__code__.co_names
                if name in value.__globals__
            ]
        elif isinstance(value, dict):
            found += [functools.partial(value.get, key) for key in value]
        elif isinstance(value, (list, tuple)):
            places.append(functools.partial(len, value))
            found += [functools.partial(_item, value, i) for i in range(len(value))]
        elif hasattr(value, "__dict__"):
            names = [*vars(value), *(n for n, v in vars(type(value)).items() if _is_simple(v))]
            found += [functools.partial(getattr, value, name, None) for name in names]
        places += found
        pending += [place() for place in found]
    return places


def _is_simple(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, complex, str, torch.dtype))


def _module_state(module: torch.nn.Module) -> tuple:
    """Of a module and all below it: flags and numbers, and which parameters, buffers, submodules
    and hooks they have. Every call asks, so this goes by exact types first."""
    state: list[Any] = []
    seen: set[int] = set()
    pending = [module]
    while pending:
        part = pending.pop()
        if part is None or id(part) in seen:
            continue
        seen.add(id(part))
        for value in part.__dict__.values():
            kind = type(value)
            if kind in _DICTS:
                state.append(len(value))
                if value:
                    state += map(id, value.values())
            elif kind in _NUMBERS:
                state += (kind, value)
            elif isinstance(value, (tuple, list)):
                state += map(_guard_place, value)
            else:
                state.append(_guard_place(value) if _is_simple(value) else id(value))
        for parameter in part._parameters.values():
            if parameter is not None:
                state += (parameter.requires_grad, len(parameter._backward_hooks or ()))
        pending += part._modules.values()
    return tuple(state)


def _item(items: list | tuple, index: int) -> Any:
    return items[index] if index < len(items) else None


def _itself(value: Any) -> Any:
    return value


def _in_cell(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _same(a: list[Any], b: list[Any]) -> bool:
    try:
        return all(type(x) is type(y) and bool(x == y) for x, y in zip(a, b, strict=True))
    except (TypeError, ValueError, RuntimeError):
        return False


def _restore(step: _Step, results: list[torch.Tensor]) -> Any:
    remaining = iter(results)
    leaves = [next(remaining) if other is _TENSOR else other for other in step.others]
    return pytree.tree_unflatten(leaves, step.spec)
