"""Appends metrics to a file as the training goes on."""

from __future__ import annotations

import os
from pathlib import Path

from torch_xla.core import xla_model as xm
from torch_xla.debug import metrics


def save_metrics(metrics_file: str | Path | None = None) -> None:
    """Appends the report to a file; each replica has its own, with its number behind the name.

    Args:
        metrics_file: by default what `XLA_METRICS_FILE` says; without either, nothing is done.
    """
    name = metrics_file or os.environ.get("XLA_METRICS_FILE")
    if not name:
        return
    ordinal = xm.get_ordinal()
    with Path(f"{name}.{ordinal}" if ordinal else str(name)).open("a") as file:
        file.write(f"[{metrics.counter_value('MarkStep') or 0}]\n{metrics.metrics_report()}\n")
