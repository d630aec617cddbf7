"""Time lines of a training loop, through torch's own profiler.

Scopes (`Trace`, `StepTrace`) show in any `torch.profiler.profile` that runs meanwhile, beside the
ops that are traced and the syncs. What happens inside a compiled program is the plugin's to tell;
none that is supported so far does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from torch_xla.core import xla_model as xm

_NO_SERVER = (
    "this PJRT plugin has no profiler to serve; torch_xla.debug.profiler.start_trace(folder) and "
    "torch.profiler.profile record the host's side"
)

_marks_steps = False
_running: tuple[torch.profiler.profile, Path] | None = None


def set_tracer_marked_step(value: bool) -> None:
    """Says whether a `StepTrace` has ended the current step already."""
    global _marks_steps
    _marks_steps = value


def get_tracer_marked_step() -> bool:
    """What `set_tracer_marked_step` said."""
    return _marks_steps


def start_server(port: int, only_on_master: bool = True) -> object:
    """Serves profiles of this process to other programs.

    Raises:
        NotImplementedError: always, as no supported plugin profiles.
    """
    raise NotImplementedError(_NO_SERVER)


def trace(service_addr: str, logdir: str, duration_ms: int = 1000, **options: Any) -> None:
    """Fetches a profile from another process.

    Raises:
        NotImplementedError: always, as no supported plugin profiles.
    """
    raise NotImplementedError(_NO_SERVER)


def trace_detached(*args: Any, **kwargs: Any) -> None:
    """`trace`, in the background.

    Raises:
        NotImplementedError: always, as no supported plugin profiles.
    """
    trace(*args, **kwargs)


def start_trace(log_dir: str | Path) -> None:
    """Records from here to `stop_trace`.

    Args:
        log_dir: a folder; the time line goes there as `trace.json`, for chrome://tracing or
            Perfetto.

    Raises:
        RuntimeError: if a recording runs already.
    """
    global _running
    if _running is not None:
        raise RuntimeError("a trace is being recorded already; stop_trace() ends it")
    profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    profile.start()
    _running = (profile, Path(log_dir))


def stop_trace() -> None:
    """Ends the recording and writes it.

    Raises:
        RuntimeError: if none runs.
    """
    global _running
    if _running is None:
        raise RuntimeError("no trace is being recorded; start_trace(log_dir) begins one")
    (profile, folder), _running = _running, None
    xm.wait_device_ops()
    profile.stop()
    folder.mkdir(parents=True, exist_ok=True)
    profile.export_chrome_trace(str(folder / "trace.json"))


class Trace:
    """A named scope of the time line: `with Trace("forward"): ...`."""

    def __init__(self, name: str, **metadata: Any) -> None:
        self.name = name
        details = ", ".join(f"{key}={value}" for key, value in metadata.items())
        self._scope = torch.profiler.record_function(f"{name}({details})" if details else name)

    def __enter__(self) -> Trace:
        self._scope.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._scope.__exit__(*exception)


class StepTrace(Trace):
    """A scope of one step, which it ends: `with StepTrace("train", step_num=i): ...`."""

    def __enter__(self) -> StepTrace:
        set_tracer_marked_step(True)
        super().__enter__()
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        if kind is None:
            xm.mark_step()
        set_tracer_marked_step(False)
        super().__exit__(kind, value, traceback)


def trace_me(scope: str) -> Callable[[Callable], Callable]:
    """Makes each call of a function a scope: `@trace_me("forward")`."""

    def decorate(func: Callable) -> Callable:
        @functools.wraps(func)
        def call(*args: Any, **kwargs: Any) -> Any:
            with Trace(scope):
                return func(*args, **kwargs)

        return call

    return decorate
