"""Counters and timings of this process (imported as `met`).

A counter is a name and a number, `aten::nonzero` for example the times an op ran on the host. A
metric is a series of samples, `CompileTime` for example nanoseconds, with their total.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch_xla._extension import _XLAC

_SHORT_METRICS = ("CompileTime", "ExecuteTime", "TransferToDeviceTime", "TransferFromDeviceTime")
_SHORT_COUNTERS = ("CachedCompile", "MarkStep")


def counter_names() -> list[str]:
    """Counters that are not zero, by name."""
    return _XLAC._xla_counter_names()


def counter_value(name: str) -> int | None:
    """A counter's value, or None when nothing was counted under this name."""
    return _XLAC._xla_counter_value(name)


def clear_counters() -> None:
    """Sets all counters to zero."""
    _XLAC._clear_xla_counters()


def metric_names() -> list[str]:
    """Metrics that have samples, by name."""
    return _XLAC._xla_metric_names()


def metric_data(name: str) -> tuple[int, float, tuple[tuple[float, float], ...]] | None:
    """Number of samples, their sum, and the last of them as (time stamp, value).

    Time stamps are seconds since 1970; values are nanoseconds, bytes or numbers. None when there
    is no sample under this name.
    """
    return _XLAC._xla_metric_data(name)


def clear_metrics() -> None:
    """Forgets all samples."""
    _XLAC._clear_xla_metrics()


def clear_all() -> None:
    """Forgets all samples and recompilations, and sets all counters to zero."""
    clear_metrics()
    clear_counters()
    _XLAC._clear_recompiles()


def metrics_report() -> str:
    """All metrics and counters as text, for people.

    Ends with the Python lines whose syncs or reads compiled more than one program, each with what
    set the last of them apart from the nearest before it, and what to do about it.
    """
    return _XLAC._xla_metrics_report() + _XLAC._recompile_report()


def short_metrics_report(
    counter_names: Iterable[str] | None = None, metric_names: Iterable[str] | None = None
) -> str:
    """Chosen metrics and counters as text.

    Args:
        counter_names: by default `CachedCompile`, `MarkStep` and every op that ran on the host.
        metric_names: by default the times of compilations, executions and transfers.
    """
    if counter_names is None:
        counter_names = [*_SHORT_COUNTERS, *executed_fallback_ops()]
    return _XLAC._short_xla_metrics_report(
        list(counter_names), list(_SHORT_METRICS if metric_names is None else metric_names)
    )


def executed_fallback_ops() -> list[str]:
    """Ops that had no way to run on the device and ran on the host, by name."""
    return _XLAC._get_executed_fallback_ops()
