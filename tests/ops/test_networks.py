"""Networks made of several operator families: a training step on xla against CPU."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from harness import DEVICE, fallbacks
from torch import nn

import torch_xla
import torch_xla.debug.metrics as met


class Recurrent(nn.Module):
    def __init__(self, kind, **arguments):
        super().__init__()
        self.cells = kind(5, 6, batch_first=True, **arguments)

    def forward(self, x):
        return self.cells(x)[0]


class Attention(nn.Module):
    """Attention written out with matmul and softmax, as many models do."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        return ((q @ k.transpose(-2, -1) / 2).softmax(-1) @ v).transpose(1, 2).flatten(2)


def convolutional():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(8, 8, 3, padding=1, groups=8),
        nn.Conv2d(8, 4, 1),
        nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.ConvTranspose2d(4, 4, 2, stride=2),
        nn.AdaptiveAvgPool2d(3),
        nn.Flatten(),
        nn.Linear(36, 2),
    )


NETWORKS = {
    "lstm": (lambda: Recurrent(nn.LSTM), (2, 4, 5)),
    "lstm_deep": (
        lambda: Recurrent(nn.LSTM, num_layers=2, bidirectional=True, proj_size=3),
        (2, 4, 5),
    ),
    "gru": (lambda: Recurrent(nn.GRU, num_layers=2, bidirectional=True), (2, 4, 5)),
    "rnn": (lambda: Recurrent(nn.RNN, nonlinearity="relu"), (2, 4, 5)),
    "attention": (Attention, (2, 5, 8)),
    "transformer": (
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), 2
        ),
        (2, 5, 8),
    ),
    "decoder": (
        lambda: nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
        (2, 5, 8),
    ),
    "convolutional": (convolutional, (2, 3, 9, 8)),
}


def train(model, x, steps=2):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        y = model(x, x) if isinstance(model, nn.TransformerDecoderLayer) else model(x)
        loss = y.square().mean()
        loss.backward()
        optimizer.step()
        torch_xla.sync()
        losses.append(loss.detach().cpu())
    return torch.stack(losses), [p.detach().cpu() for p in model.parameters()]


@pytest.mark.parametrize("name", NETWORKS)
def test_training(name):
    make, sizes = NETWORKS[name]
    torch.manual_seed(0)
    model, x = make(), torch.randn(sizes)
    other = copy.deepcopy(model).to(DEVICE)
    met.clear_counters()
    expected = train(model, x)
    got = train(other, x.to(DEVICE))
    assert not fallbacks()
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["lstm", "gru", "transformer", "convolutional"])
def test_inference(name):
    make, sizes = NETWORKS[name]
    model, x = make().eval(), torch.randn(sizes)
    expected = model(x)
    with torch.no_grad():
        got = copy.deepcopy(model).to(DEVICE)(x.to(DEVICE)).cpu()
    torch.testing.assert_close(got, expected.detach(), rtol=1e-3, atol=1e-4)


def test_padded_sequences():
    model = nn.LSTM(3, 4, batch_first=True)
    x, lengths = torch.randn(2, 5, 3), torch.tensor([5, 3])
    other = copy.deepcopy(model).to(DEVICE)

    def run(model, x):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        return nn.utils.rnn.pad_packed_sequence(model(packed)[0], batch_first=True)[0]

    torch.testing.assert_close(run(other, x.to(DEVICE)).cpu(), run(model, x), rtol=1e-4, atol=1e-5)


def test_channels_last_model():
    model = convolutional().to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 9, 8).to(memory_format=torch.channels_last)
    other = copy.deepcopy(model).to(DEVICE)
    y = other[:3](x.to(DEVICE))
    assert y.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(other(x.to(DEVICE)).cpu(), model(x), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_step(dtype):
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.GELU(), nn.Flatten(), nn.Linear(64, 3)).to(dtype)
    x, target = torch.randn(4, 2, 6, 6).to(dtype), torch.tensor([0, 1, 2, 1])
    other = copy.deepcopy(model).to(DEVICE)
    for m, device in ((model, "cpu"), (other, DEVICE)):
        F.cross_entropy(m(x.to(device)).float(), target.to(device)).backward()
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(q.grad.cpu(), p.grad, rtol=3e-2, atol=3e-2)
