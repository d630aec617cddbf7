"""`torch.optim.Adam` with a step that can be thrown away."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from torch_xla.amp.syncfree._where import keep_if, on_device_steps


class Adam(torch.optim.Adam):
    """`torch.optim.Adam`, with its arguments."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        on_device_steps(self)

    def step(
        self, closure: Callable[[], Any] | None = None, found_inf: torch.Tensor | None = None
    ) -> Any:
        """One step.

        Args:
            closure: computes the loss again, as for `torch.optim.Adam`.
            found_inf: one element; when it is not zero the step changes nothing.
        """
        undo = (
            contextlib.nullcontext()
            if found_inf is None
            else keep_if(self, found_inf.reshape(()) != 0)
        )
        with undo:
            return super().step(closure)
