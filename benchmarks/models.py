"""The models and training steps that are measured."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable

import torch
from torch import nn
from torch.nn import functional as F

from examples.gpt import Block
from examples.resnet18 import BasicBlock


class GPT(nn.Module):
    """GPT-2's shape: learned positions, pre-norm blocks, tied head, SDPA. [N, T] to logits."""

    def __init__(self, vocabulary: int, context: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.positions.weight, std=0.02)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.positions(places)
        return self.head(self.norm(self.blocks(x)))


class ResNet18(nn.Module):
    """He et al. 2015, table 1, 18 layers, with the ImageNet stem. [N, 3, H, W] to [N, 1000]."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            nn.Conv2d(3, 64, 7, 2, 3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        ]
        channels = 64
        for out, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            layers += [BasicBlock(channels, out, stride), BasicBlock(out, out, 1)]
            channels = out
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)]
        self.layers = nn.Sequential(*layers)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layers(images)


def mlp(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width, following in itertools.pairwise(widths):
        layers += [nn.Linear(width, following), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def adamw(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-4)


def fused_adamw(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Counts its steps on the device, which a replayed step needs."""
    return torch.optim.AdamW(parameters, lr=1e-4, fused=True)


def sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=1e-2, momentum=0.9, weight_decay=1e-4)


@dataclasses.dataclass
class Job:
    """A model, one batch of inputs and class labels for it, and an optimizer."""

    model: Callable[[], nn.Module]
    data: Callable[[], tuple[torch.Tensor, torch.Tensor]]
    optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer] = adamw

    def training_step(
        self, device: torch.device, optimizer_of: Callable | None = None
    ) -> Callable[[], torch.Tensor]:
        """A function that does one step on the device and returns its loss, unsynced."""
        torch.manual_seed(0)
        model = self.model().to(device)
        optimizer = (optimizer_of or self.optimizer)(model.parameters())
        inputs, labels = (tensor.to(device) for tensor in self.data())

        def step() -> torch.Tensor:
            optimizer.zero_grad()
            logits = model(inputs)
            loss = F.cross_entropy(logits.flatten(0, -2), labels.flatten())
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step


def _text(vocabulary: int, batch: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.randint(vocabulary, (2, batch, length))
    return tokens[0], tokens[1]


# Sizes for which a step's arithmetic counts.
TRAINING = {
    "mlp": Job(
        lambda: mlp(784, 1024, 1024, 1024, 10),
        lambda: (torch.randn(128, 784), torch.randint(10, (128,))),
    ),
    "resnet18": Job(
        ResNet18,
        lambda: (torch.randn(4, 3, 128, 128), torch.randint(1000, (4,))),
        sgd,
    ),
    "gpt-12x256": Job(lambda: GPT(2000, 128, 256, 12, 8), lambda: _text(2000, 2, 128)),
    "gpt2": Job(lambda: GPT(50257, 128, 768, 12, 12), lambda: _text(50257, 2, 128)),
}

# The same ops on sizes so small that only the host's work per op is left.
TRACING = {
    "MLP-8, AdamW": Job(
        lambda: mlp(*[64] * 9), lambda: (torch.randn(8, 64), torch.randint(64, (8,)))
    ),
    "GPT-12, AdamW": Job(lambda: GPT(101, 16, 48, 12, 4), lambda: _text(101, 2, 16)),
    "ResNet-18, SGD": Job(
        ResNet18,
        lambda: (torch.randn(2, 3, 32, 32), torch.randint(1000, (2,))),
        sgd,
    ),
}
