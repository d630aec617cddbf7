"""Optimizers whose state is yet to be made."""

from __future__ import annotations

import torch

import torch_xla


def prime_optimizer(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Makes the state of a new optimizer, so that a checkpoint can be loaded into it.

    Takes one step with gradients of zero and a learning rate of zero, which changes no parameter.
    State is sharded as its parameter is. Steps are counted from here: load the state afterwards.

    Returns:
        The same optimizer.

    Raises:
        ValueError: it has state already, which the step would change.
    """
    if optimizer.state:
        raise ValueError("prime_optimizer: the optimizer has state already")
    rates = [group.get("lr") for group in optimizer.param_groups]
    gradients = []
    try:
        for group in optimizer.param_groups:
            if "lr" in group:
                rate = group["lr"]
                group["lr"] = torch.zeros_like(rate) if isinstance(rate, torch.Tensor) else 0.0
            for parameter in group["params"]:
                if parameter.requires_grad:
                    gradients.append((parameter, parameter.grad))
                    parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
    finally:
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            if "lr" in group:
                group["lr"] = rate
        for parameter, gradient in gradients:
            parameter.grad = gradient
    torch_xla.sync()
    return optimizer
