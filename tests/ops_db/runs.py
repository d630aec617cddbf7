"""Runs the samples of one case on CPU and on xla, and compares.

All samples are traced before the first is read: one program for each case, not one for each sample.
"""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from exceptions import DRAWN, FACTORIES, UNDEFINED
from harness import DEVICE, check_equal, copy_to
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_leaves

import torch_xla

# What CPU may say to a sample that it does not take.
REFUSALS = (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError)


@dataclass
class Run:
    """One call: `call(device)` gives what is compared; `text` describes it in messages."""

    call: Callable[[str | torch.device], Any]
    text: str
    values: bool = True
    strides: bool = True


def spread(samples: Iterable, limit: int, of: int = 100) -> list:
    """At most `limit` of the first `of` samples, evenly spread."""
    every = list(itertools.islice(samples, of))
    if len(every) <= limit:
        return every
    return [every[i * len(every) // limit] for i in range(limit)]


def arguments(op: OpInfo, sample: SampleInput, device) -> tuple[tuple, dict]:
    """Copies of a sample's arguments on `device`."""

    def moved(item):
        if isinstance(item, str) and item == "cpu":
            return torch.device(device)
        return copy_to(item, device)

    args = (copy_to(sample.input, device), *(moved(arg) for arg in sample.args))
    kwargs = {
        key: None if isinstance(value, torch.Generator) else moved(value)
        for key, value in sample.kwargs.items()
    }
    from_nothing = not any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(args))
    if op.name in FACTORIES and from_nothing:
        kwargs.setdefault("device", torch.device(device))
    return args, kwargs


def has_values(op: OpInfo, sample: SampleInput) -> bool:
    """Whether the results of a sample are decided by its arguments."""
    return op.name not in UNDEFINED and not (op.name in DRAWN and _draws(sample))


def _draws(sample: SampleInput) -> bool:
    if sample.kwargs.get("training") is False:
        return False
    chance = sample.kwargs.get("dropout_p", sample.kwargs.get("p"))
    return chance not in (0.0, 1.0)


def describe(sample: SampleInput) -> str:
    text = sample.summary()
    return text if len(text) < 400 else text[:400] + "..."


def compare(runs: list[Run], dtype: torch.dtype | None, *, strides: bool = True) -> None:
    """Runs everything on CPU and on xla; fails with one message about all that differ.

    What CPU refuses is passed over; a case of which it takes nothing is skipped. Messages are text:
    a kept traceback would keep tensors of this case alive in the next.
    """
    problems, pending, refusal = [], [], None
    for run in runs:
        try:
            torch.manual_seed(0)
            expected = run.call("cpu")
        except REFUSALS as error:
            refusal = refusal or _short(error)
            continue
        try:
            torch.manual_seed(0)
            got = run.call(DEVICE)
        except Exception as error:
            problems.append(f"{run.text}\n  {_short(error)}")
            continue
        pending.append((run, expected, got))
    if not pending and not problems:
        pytest.skip(f"CPU takes none of the samples: {refusal}")
    try:
        torch_xla.sync()
    except Exception as error:
        problems.append(f"sync: {_short(error)}")
    for run, expected, got in pending:
        try:
            check_equal(
                expected, got, dtype=dtype, values=run.values, strides=strides and run.strides
            )
        except Exception as error:
            problems.append(f"{run.text}\n  {_short(error)}")
    pending.clear()
    if problems:
        pytest.fail(f"{len(problems)} of {len(runs)} differ\n" + "\n".join(problems), pytrace=False)


def _short(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    error.__traceback__ = None
    where = f" (at {frames[-1].name}:{frames[-1].lineno})" if frames else ""
    text = " ".join(str(error).split())[:500]
    return f"{type(error).__name__}: {text}{where}"


def wanted(tree) -> list[torch.Tensor]:
    """The tensors of a tree that have gradients."""
    return [
        leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor) and leaf.requires_grad
    ]


def cotangents(outputs: list[torch.Tensor], *, requires_grad: bool = False) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [
        torch.randn(out.size(), generator=generator, dtype=torch.float64)
        .to(out.dtype)
        .to(out.device)
        .requires_grad_(requires_grad)
        for out in outputs
    ]
