"""Fixtures shared by the Python tests. tests/ mirrors csrc/ and torch_xla/."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator

import pytest
import torch

# Before anything of torch_xla is loaded: tests speak about the CPU plugin unless told otherwise,
# and find no programs that earlier runs compiled.
os.environ.setdefault("PJRT_DEVICE", "CPU")
os.environ["TORCH_XLA_PERSISTENT_CACHE"] = "0"


# A shell starts what it runs in the background with interrupts ignored, and so would children.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _same_draws() -> None:
    """Each test starts from one seed, so that a draw which fails a bound fails it every time."""
    torch.manual_seed(0)


@pytest.fixture
def device() -> torch.device:
    """The default xla device."""
    import torch_xla

    return torch_xla.device()


def finish_what_is_pending() -> None:
    """What tests before left to be computed would be part of the next program."""
    import torch_xla

    if not torch_xla._XLAC._xla_runtime_is_initialized():
        return
    with contextlib.suppress(Exception):  # of a step that those tests let fail
        torch_xla.sync(wait=True)


@pytest.fixture
def metrics() -> Iterator:
    """`torch_xla.debug.metrics`, with every metric and counter cleared before and after."""
    import torch_xla.debug.metrics as met

    finish_what_is_pending()
    met.clear_all()
    yield met
    met.clear_all()


@pytest.fixture
def no_fallback(metrics) -> Iterator[None]:
    """Fails a test that made any op leave the device: no `aten::` counter may appear."""
    yield
    left = {name: metrics.counter_value(name) for name in metrics.executed_fallback_ops()}
    assert not left, f"these ops ran on the host: {left}"


@pytest.fixture
def run_python() -> Callable[..., subprocess.CompletedProcess]:
    """Runs a program in a fresh interpreter: for what happens once a process, or ends one.

    `run_python(source, **environment)` dedents `source`, adds `environment` to this process's own
    (None removes a variable) and returns the completed process, its output captured as text.
    Whether it succeeded is for the test to assert.
    """

    def run(source: str, **environment: str | None) -> subprocess.CompletedProcess:
        merged = {**os.environ, **environment}
        return subprocess.run(
            [sys.executable, "-c", textwrap.dedent(source)],
            env={name: value for name, value in merged.items() if value is not None},
            capture_output=True,
            text=True,
            check=False,
        )

    return run
