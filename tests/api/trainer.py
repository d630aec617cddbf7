"""A small training step for tests of compiled, prepared and replayed steps."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import torch_xla


def trainer(
    device, *, replay=False, dropout=0.1, clip=False, optimizer=torch.optim.AdamW, **options
):
    """A model of fixed weights for inputs [n, 8] and 4 classes, its optimizer, and its step, which
    takes a batch and returns the loss."""
    torch.manual_seed(7)
    model = nn.Sequential(
        nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(dropout), nn.Linear(32, 4)
    ).to(device)
    stepper = optimizer(model.parameters(), **options)

    def step(x, y):
        stepper.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        stepper.step()
        return loss.detach()

    return model, stepper, torch_xla.compile(step, replay=replay)
