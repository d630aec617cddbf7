"""Lets these tests import the harness of tests/ops, and keeps each case to itself."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

for folder in (Path(__file__).parent, Path(__file__).parent.parent / "ops"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


@pytest.fixture(autouse=True)
def _isolated(monkeypatch) -> Iterator[None]:
    """Settings of the process are as they were after each case, and no pending tensor is left."""
    # The databases seed each call of an operator that draws; here the caller does.
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.testing._internal") and hasattr(module, "wrapper_set_seed"):
            monkeypatch.setattr(module, "wrapper_set_seed", lambda op, *a, **k: op(*a, **k))
    dtype, grad = torch.get_default_dtype(), torch.is_grad_enabled()
    deterministic = torch.are_deterministic_algorithms_enabled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch.set_default_dtype(dtype)
    torch.set_grad_enabled(grad)
    torch.use_deterministic_algorithms(deterministic)
    _collect_rarely()


_cases = 0


def _collect_rarely() -> None:
    # Cycles (tracebacks, autograd graphs) keep tensors alive; a full collection takes 0.2 s.
    global _cases
    _cases += 1
    gc.collect(2 if _cases % 50 == 0 else 0)
