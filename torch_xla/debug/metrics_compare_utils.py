"""Compares the metrics of one run with those of others, to notice that something got slower."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping
from typing import Any

# Nanoseconds and bytes of the units that reports print.
_TIME_UNITS = {"d": 86400e9, "h": 3600e9, "m": 60e9, "s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0}
_BYTE_UNITS = {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40, "PB": 2**50}
_TIME = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|us|ns|d|h|m|s))+")
_TIME_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|us|ns|d|h|m|s)")
_BYTES = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?B)")


def _number(text: str) -> float:
    """
    >>> _number("01s500ms000.000us")
    1500000000.0
    >>> _number("1.50KB"), _number("3")
    (1536.0, 3.0)
    """
    if match := _BYTES.fullmatch(text):
        return float(match.group(1)) * _BYTE_UNITS[match.group(2)]
    if _TIME.fullmatch(text):
        return sum(float(value) * _TIME_UNITS[unit] for value, unit in _TIME_PART.findall(text))
    return float(text)


def parse_metrics_report(report: str, dehumanize: bool = True) -> dict[str, Any]:
    """The numbers of a report, by names such as `CompileTime__Accumulator`.

    Args:
        report: what `metrics_report` gave.
        dehumanize: give nanoseconds, bytes and plain numbers; else the report's own words.

    >>> parse_metrics_report("Counter: MarkStep\\n  Value: 3\\n")
    {'MarkStep__Value': 3.0}
    """
    result: dict[str, Any] = {}
    name = ""
    convert = _number if dehumanize else str
    for line in report.splitlines():
        key, _, value = line.strip().partition(": ")
        if key in ("Metric", "Counter"):
            name = value
        elif key == "Percentiles":
            for percentile in value.split("; "):
                percent, _, number = percentile.partition("=")
                result[f"{name}__Percentile_{percent.rstrip('%')}"] = convert(number)
        elif value and name:
            result[f"{name}__{key}"] = convert(value.removesuffix(" / second"))
    return result


def get_data_points_from_metrics_reports(reports: Iterable[str]) -> dict[str, list[float]]:
    """The numbers of several reports, each name with all its values."""
    points: dict[str, list[float]] = {}
    for report in reports:
        for name, value in parse_metrics_report(report).items():
            points.setdefault(name, []).append(value)
    return points


def compare_metrics(
    data_points: Mapping[str, list[float]],
    metrics_report: str,
    config: Mapping[str, Any] | None = None,
) -> str:
    """Says which numbers of a report are far above those of earlier runs.

    Args:
        data_points: what `get_data_points_from_metrics_reports` gave for them.
        metrics_report: of the run in question.
        config: `{"base_expression": "v <= mean + stddev * 2"}`, and others for single metrics as
            `{"CompileTime__Accumulator": "v <= mean * 1.1"}`. In an expression, v is the number,
            mean and stddev those of earlier runs. `"metrics_exclude"` is a list of names to skip.

    Returns:
        One line a number that fails its expression; empty when all is well.
    """
    config = dict(config or {})
    base = config.get("base_expression", "v <= mean + stddev * 2")
    excluded = set(config.get("metrics_exclude", ()))
    complaints = []
    for name, value in parse_metrics_report(metrics_report).items():
        history = data_points.get(name)
        if not history or name in excluded:
            continue
        expression = config.get(name, base)
        known = {
            "v": value,
            "mean": statistics.fmean(history),
            "stddev": statistics.pstdev(history),
        }
        # The expression comes from the caller's own configuration.
        if not eval(expression, {"__builtins__": {}}, known):
            complaints.append(
                f"{name}: {value} fails '{expression}' "
                f"(mean {known['mean']:.6g}, stddev {known['stddev']:.6g})"
            )
    return "\n".join(complaints)
