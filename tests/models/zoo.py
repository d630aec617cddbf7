"""Small models of every kind that training must cover, each with a batch and a loss.

`CASES[name]` makes one; equal seeds make equal models and batches. Models are built on CPU with
dropout 0, so that a run on another device starts from the same numbers and sees the same data.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

Batch = dict[str, torch.Tensor]


@dataclasses.dataclass
class Case:
    """A model, one batch for it, and the scalar that training makes smaller."""

    model: nn.Module
    batch: Batch
    loss: Callable[[nn.Module, Batch], torch.Tensor]
    looks: int = 0  # different values that the model itself reads back in a step


CASES: dict[str, Callable[[], Case]] = {}


def case(make: Callable[[], Case]) -> Callable[[], Case]:
    CASES[make.__name__] = make
    return make


def classify(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Cross entropy of `model(x)`, logits [N, classes], and `y`, classes [N]."""
    return F.cross_entropy(model(batch["x"]), batch["y"])


@case
def mlp() -> Case:
    model = nn.Sequential(
        nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 10)
    )
    return Case(model, {"x": torch.randn(16, 20), "y": torch.randint(10, (16,))}, classify)


# --- Convolutions ---------------------------------------------------------------------------------


class BasicBlock(nn.Module):
    """ResNet's block of two 3 x 3 convolutions (He et al. 2015, figure 2)."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(out)
        self.shortcut = None
        if stride != 1 or channels != out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        y = self.norm2(self.conv2(y))
        y += x if self.shortcut is None else self.shortcut(x)
        return F.relu(y, inplace=True)


class ResNet18(nn.Module):
    """Images [N, 3, H, W] to logits [N, classes]; the first stage has `width` channels."""

    def __init__(self, width: int = 64, classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        ]
        channels = width
        for stage, stride in enumerate((1, 2, 2, 2)):
            out = width << stage
            layers += [BasicBlock(channels, out, stride), BasicBlock(out, out, 1)]
            channels = out
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(channels, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(F.adaptive_avg_pool2d(self.features(images), 1).flatten(1))


@case
def resnet18() -> Case:
    model = ResNet18(width=8, classes=10)
    return Case(model, {"x": torch.randn(4, 3, 64, 64), "y": torch.randint(10, (4,))}, classify)


@case
def convolutions() -> Case:
    """Every kind of convolution, an adaptive pool that does not divide, group and instance norm."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=2, dilation=2),
        nn.GroupNorm(2, 8),
        nn.SiLU(),
        nn.Conv2d(8, 8, 3, padding=1, groups=8),  # depthwise
        nn.InstanceNorm2d(8, affine=True),
        nn.LeakyReLU(),
        nn.Conv2d(8, 12, (3, 5), stride=2, padding="valid", groups=4),
        nn.GELU(),
        nn.ConvTranspose2d(12, 8, 3, stride=2, padding=1, output_padding=1, groups=2),
        nn.AvgPool2d(2),
        nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.ConvTranspose2d(8, 6, 3, dilation=2),
        nn.ELU(),
        nn.AdaptiveAvgPool2d((5, 3)),
        nn.Flatten(),
        nn.Linear(90, 10),
    )
    return Case(model, {"x": torch.randn(2, 3, 16, 20), "y": torch.randint(10, (2,))}, classify)


@case
def convolutions_1d_3d() -> Case:
    """Sequences [N, C, T], then their features as small volumes."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = nn.Sequential(
                nn.Conv1d(2, 4, 5, stride=2, padding=2, bias=False),
                nn.BatchNorm1d(4),
                nn.Hardswish(),
            )
            self.volume = nn.Sequential(
                nn.Conv3d(1, 4, 3, padding=1, bias=False),
                nn.BatchNorm3d(4),
                nn.ReLU(),
                nn.MaxPool3d(2),
            )
            self.head = nn.Linear(32, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.line(x).reshape(x.shape[0], 1, 4, 4, 4)
            return self.head(self.volume(y).flatten(1))

    return Case(Net(), {"x": torch.randn(4, 2, 32), "y": torch.randint(10, (4,))}, classify)


# --- Sequences ------------------------------------------------------------------------------------


class Recurrent(nn.Module):
    """Tokens [N, T] through an nn.LSTM or nn.GRU to logits [N, 10]."""

    def __init__(self, kind: type[nn.RNNBase], **options) -> None:
        super().__init__()
        self.embedding = nn.Embedding(30, 12)
        self.body = kind(12, 16, batch_first=True, **options)
        self.head = nn.Linear(32 if options.get("bidirectional") else 16, 10)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        output, _ = self.body(self.embedding(tokens))
        return self.head(output[:, -1])


def recurrent(kind: type[nn.RNNBase], **options) -> Case:
    batch = {"x": torch.randint(30, (4, 7)), "y": torch.randint(10, (4,))}
    return Case(Recurrent(kind, **options), batch, classify)


@case
def lstm() -> Case:
    return recurrent(nn.LSTM, num_layers=2)


@case
def lstm_bidirectional() -> Case:
    return recurrent(nn.LSTM, bidirectional=True)


@case
def gru() -> Case:
    return recurrent(nn.GRU, num_layers=2)


@case
def transformer_encoder() -> Case:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(30, 16)
            layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
            self.body = nn.TransformerEncoder(layer, 2)
            self.head = nn.Linear(16, 10)

        def forward(self, tokens: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
            hidden = self.body(self.embedding(tokens), src_key_padding_mask=padding)
            return self.head(hidden.mean(1))

    padding = torch.zeros(3, 6, dtype=torch.bool)
    padding[1, 4:] = True
    batch = {"x": torch.randint(30, (3, 6)), "padding": padding, "y": torch.randint(10, (3,))}
    return Case(Net(), batch, lambda m, b: F.cross_entropy(m(b["x"], b["padding"]), b["y"]))


# --- Models of the transformers package -----------------------------------------------------------


def language_model_batch(vocabulary: int) -> Batch:
    """Tokens, and labels that leave the end of the second sequence out."""
    tokens = torch.randint(vocabulary, (2, 12))
    labels = tokens.clone()
    labels[1, 9:] = -100
    return {"input_ids": tokens, "labels": labels}


def padded(case: Case, looks: int) -> Case:
    """The same with a mask over the end of the second sequence.

    transformers looks whether masks hide anything at all: a read, which is a program of its own.
    """
    mask = torch.ones(2, 12, dtype=torch.int64)
    mask[1, 9:] = 0
    return Case(case.model, {**case.batch, "attention_mask": mask}, case.loss, looks)


def own_loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    return model(**batch).loss


@case
def gpt2() -> Case:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=60,
        n_positions=16,
        n_embd=32,
        n_layer=2,
        n_head=4,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        resid_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    return Case(GPT2LMHeadModel(config), language_model_batch(60), own_loss)


@case
def bert() -> Case:
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=60,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=16,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return Case(BertForMaskedLM(config), language_model_batch(60), own_loss)


@case
def llama() -> Case:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=60,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=16,
    )
    return Case(LlamaForCausalLM(config), language_model_batch(60), own_loss)


@case
def bert_padded() -> Case:
    return padded(bert(), looks=1)


@case
def llama_padded() -> Case:
    return padded(llama(), looks=1)  # two looks, at the same thing
