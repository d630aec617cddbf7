"""What the tests of torch.compile(backend="openxla") compile, and how they compare."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import torch_xla.debug.metrics as met


def launches() -> int:
    return met.counter_value("CompiledGraph") or 0


def compilations() -> int:
    data = met.metric_data("CompileTime")
    return data[0] if data else 0


def host(value):
    """The same on CPU, gradients of leaves included."""
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    if isinstance(value, (list, tuple)):
        return type(value)(map(host, value))
    if isinstance(value, dict):
        return {key: host(item) for key, item in value.items()}
    return value


def layout(value):
    if isinstance(value, torch.Tensor):
        return value.dtype, value.shape, value.stride(), value.storage_offset()
    if isinstance(value, (list, tuple)):
        return list(map(layout, value))
    if isinstance(value, dict):
        return {key: layout(item) for key, item in value.items()}
    return type(value)


def assert_same(got, wanted):
    assert layout(got) == layout(wanted)
    torch.testing.assert_close(host(got), wanted)


def batch(seed=0, *shape):
    return torch.randn(*(shape or (3, 4)), generator=torch.Generator().manual_seed(seed))


def mutate(x):
    x.mul_(2).add_(1)
    return x.sum()


def views_of_new(x):
    y = x * 2
    return y, y.t(), y[1], y.view(-1)


class Block(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Sequential(nn.Linear(width, 16), nn.GELU(), nn.Linear(16, width))
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        self.calls += 1
        return x + self.inner(self.norm(x))


MODELS = {
    "mlp": lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)),
    "batch_norm": lambda: nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 4)),
    "blocks": lambda: nn.Sequential(Block(), Block(), nn.Linear(8, 4)),
    "convolution": lambda: nn.Sequential(
        nn.Unflatten(1, (2, 2, 2)),
        nn.Conv2d(2, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
    ),
    "attention": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 8)),
        nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
        nn.Flatten(),
    ),
    "lstm": lambda: Recurrent(),
    "tied": lambda: Tied(),
}


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTM(4, 6, batch_first=True)

    def forward(self, x):
        return self.cell(x.view(-1, 2, 4))[0][:, -1]


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(F.silu(self.first(x)))


def train(model, optimizer, inputs, compiled=None, steps=4):
    compiled = model if compiled is None else compiled
    losses = []
    for x in inputs[:steps]:
        optimizer.zero_grad()
        loss = compiled(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    gradients = [p.grad for p in model.parameters()]
    return losses, gradients, dict(model.state_dict())
