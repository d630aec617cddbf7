"""Loss scaling for float16, without a transfer a step."""

from __future__ import annotations

from typing import Any

import torch

from torch_xla.amp.syncfree._where import keep_if


class GradScaler(torch.amp.GradScaler):
    """`torch.amp.GradScaler` whose decisions are made on the device.

    Whether a gradient overflowed is data of the program: the step is computed and then kept or
    thrown away by a select, and the scale grows or shrinks by another. So nothing has to be read
    back, and a step stays one program. (torch's own reads the flag before each step.)

    Arguments are those of `torch.amp.GradScaler`, the device apart.

    Source of the scheme: Micikevicius et al., "Mixed Precision Training", ICLR 2018, section 3.2.
    """

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__("xla", init_scale, growth_factor, backoff_factor, growth_interval, enabled)

    @torch.no_grad()
    def _unscale_grads_(
        self,
        optimizer: torch.optim.Optimizer,
        inv_scale: torch.Tensor,
        found_inf: torch.Tensor,
        allow_fp16: bool,
    ) -> dict[torch.device, torch.Tensor]:
        flags: dict[torch.device, torch.Tensor] = {}
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                grad = parameter.grad
                if grad is None:
                    continue
                if not allow_fp16 and grad.dtype == torch.float16:
                    raise ValueError("attempting to unscale float16 gradients")
                bad = (~torch.isfinite(grad)).any().to(torch.float32)
                seen = flags.get(grad.device)
                flags[grad.device] = bad if seen is None else torch.maximum(seen, bad)
                grad.mul_(inv_scale.to(device=grad.device, dtype=grad.dtype))
        return flags or {found_inf.device: found_inf}

    def _maybe_opt_step(
        self,
        optimizer: torch.optim.Optimizer,
        optimizer_state: dict[str, Any],
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        flags = list(optimizer_state["found_inf_per_device"].values())
        bad = flags[0]
        for flag in flags[1:]:
            bad = torch.maximum(bad, flag.to(bad.device))
        with keep_if(optimizer, bad > 0):
            return optimizer.step(*args, **kwargs)

    @torch.no_grad()
    def update(self, new_scale: float | torch.Tensor | None = None) -> None:
        """Adapts the scale to what the gradients of this step were.

        Args:
            new_scale: the scale to use from here on, instead.
        """
        if not self._enabled or new_scale is not None:
            return super().update(new_scale)
        scale, tracker = self._check_scale_growth_tracker("update")
        flags = [
            flag.to(scale.device)
            for state in self._per_optimizer_states.values()
            for flag in state["found_inf_per_device"].values()
        ]
        if not flags:
            raise AssertionError("No inf checks were recorded prior to update.")
        bad = torch.stack([flag.reshape(()) for flag in flags]).amax() > 0
        good_steps = tracker + 1
        grows = good_steps == self._growth_interval
        scale.copy_(
            torch.where(
                bad,
                scale * self._backoff_factor,
                torch.where(grows, scale * self._growth_factor, scale),
            )
        )
        tracker.copy_(torch.where(bad | grows, torch.zeros_like(tracker), good_steps))
        for key in list(self._per_optimizer_states):
            self._per_optimizer_states[key] = torch.amp.grad_scaler._refresh_per_optimizer_state()
        return None
