"""`torch_xla.compile(f, replay=True)`: steps that are launched again without running `f`.

The compiled half (csrc/lazy/replay.h) finds out what a step reads and writes, and what a call sees
beside that (csrc/python/guards.cpp). Here is decided which step a call is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_xla._extension import _XLAC
from torch_xla._internal import steps

_logger = logging.getLogger("torch_xla.replay")
_MOST_STEPS = 16  # with guards of their own, for one function
_TENSOR = object()
_MOST_ATTEMPTS = 4  # at recording one of them, before it is traced for good


class _Step:
    """A function under one set of guards: being recorded, replayed, or traced for good."""

    def __init__(self, guards: Any, call_spec: Any) -> None:
        self.guards = guards
        self.call_spec = call_spec  # of the arguments
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
        self._steps: list[_Step] = []  # the one called last comes last
        self.reason = ""  # why the last call was traced

    def __call__(self, args: tuple, kwargs: dict) -> Any:
        leaves, spec = _flatten(args, kwargs)
        try:
            step = self._find(leaves, spec)
        except TypeError:
            return self._trace(args, kwargs, "an argument cannot be compared")
        tensors = [leaf for leaf in leaves if _is_xla(leaf)]
        reason = ""
        if step.replay is not None:
            steps.run_waiting_closures()
            results, reason = step.replay.run(tensors)
            if results is not None:
                self.reason = ""
                step.attempts = 0
                return _restore(step, results)
            step.replay = step.last_call = None
        if step.attempts >= _MOST_ATTEMPTS:
            return self._trace(args, kwargs, step.reason)
        return self._record(step, tensors, args, kwargs, reason)

    def _find(self, leaves: Sequence[Any], spec: Any) -> _Step:
        """The step that such a call is, a new one if it is none of those before."""
        for i in reversed(range(len(self._steps))):
            step = self._steps[i]
            if step.call_spec == spec and step.guards.hold(self._f, leaves):
                if step is not self._steps[-1]:
                    self._steps.append(self._steps.pop(i))
                return step
        step = _Step(_XLAC._Guards(self._f, leaves), spec)
        self._steps.append(step)
        if len(self._steps) > _MOST_STEPS:
            del self._steps[0]
        return step

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


def _flatten(args: tuple, kwargs: dict) -> tuple[Sequence[Any], Any]:
    if not kwargs and all(type(arg) is torch.Tensor for arg in args):
        return args, len(args)
    return pytree.tree_flatten((args, kwargs))


def _is_xla(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.device.type == "xla"


def _same(a: list[Any], b: list[Any]) -> bool:
    try:
        return all(type(x) is type(y) and bool(x == y) for x, y in zip(a, b, strict=True))
    except (TypeError, ValueError, RuntimeError):
        return False


def _restore(step: _Step, results: list[torch.Tensor]) -> Any:
    remaining = iter(results)
    leaves = [next(remaining) if other is _TENSOR else other for other in step.others]
    return pytree.tree_unflatten(leaves, step.spec)
