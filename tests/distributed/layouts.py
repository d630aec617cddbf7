"""Models of some size, and the usual ways to lay them out over 8 devices.

A layout marks a model and its batch, which are on xla, in place, and returns what to call: the
model or a wrapper. Models are those of tests/models, with batches that divide by 8.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F
from zoo import CASES, Batch, Case, ResNet18, classify

import torch_xla.distributed.spmd as xs
from torch_xla.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch_xla.experimental.spmd_fully_sharded_data_parallel import SpmdFullyShardedDataParallel

ROWS = xs.Mesh(range(8), (8,), ("data",))
FSDP = xs.Mesh(range(8), (8, 1), ("fsdp", "model"))
TENSOR = xs.Mesh(range(8), (8,), ("model",))
BOTH = xs.Mesh(range(8), (2, 4), ("fsdp", "model"))


# --- Models ---------------------------------------------------------------------------------------


class Experts(nn.Module):
    """A mixture of experts: each token goes through the two that its router likes best.

    Shazeer et al. 2017, equations 1 to 3, without noise. All experts see all tokens, and weights of
    zero hide what was not chosen: shapes depend on no data.
    """

    def __init__(self, width: int, hidden: int, count: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, count)
        self.up = nn.Parameter(torch.randn(count, width, hidden) / width**0.5)
        self.down = nn.Parameter(torch.randn(count, hidden, width) / hidden**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.router(x)
        best = scores.topk(2, dim=-1)
        chosen = torch.zeros_like(scores).scatter(-1, best.indices, best.values.softmax(-1))
        hidden = F.gelu(torch.einsum("btd,edh->beth", x, self.up))
        return torch.einsum("beth,ehd,bte->btd", hidden, self.down, chosen)


class MixtureBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(32, 16)
        self.norm = nn.LayerNorm(16)
        self.experts = Experts(16, 32, 8)
        self.head = nn.Linear(16, 8)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        x = x + self.experts(self.norm(x))
        return self.head(x.mean(1))


def resnet18() -> Case:
    model = ResNet18(width=8, classes=16)
    batch = {"x": torch.randn(8, 3, 32, 32), "y": torch.randint(16, (8,))}
    return Case(model, batch, classify)


def gpt2() -> Case:
    case = CASES["gpt2"]()
    tokens = torch.randint(60, (8, 12))
    return Case(case.model, {"input_ids": tokens, "labels": tokens}, case.loss)


def mixture() -> Case:
    batch = {"x": torch.randint(32, (16, 6)), "y": torch.randint(8, (16,))}
    return Case(MixtureBlock(), batch, classify)


MODELS: dict[str, Callable[[], Case]] = {"resnet18": resnet18, "gpt2": gpt2, "mixture": mixture}


# --- Layouts --------------------------------------------------------------------------------------


def cut_batch(batch: Batch, mesh: xs.Mesh, axis: str) -> None:
    for tensor in batch.values():
        xs.mark_sharding(tensor, mesh, (axis, *[None] * (tensor.dim() - 1)))


def data_parallel(model: nn.Module, batch: Batch) -> nn.Module:
    cut_batch(batch, ROWS, "data")
    return model


def blocks_of(model: nn.Module) -> set[type[nn.Module]]:
    names = ("BasicBlock", "GPT2Block", "Experts")
    return {type(module) for module in model.modules() if type(module).__name__ in names}


def fsdp(model: nn.Module, batch: Batch, mesh: xs.Mesh = FSDP) -> nn.Module:
    cut_batch(batch, mesh, "fsdp")
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls=blocks_of(model))
    return SpmdFullyShardedDataParallel(model, mesh=mesh, auto_wrap_policy=policy)


# The dimension of a weight that tensor parallelism cuts: of its outputs for the first layer of a
# pair, of its inputs for the second (Shoeybi et al. 2019, Megatron-LM, section 3).
_CUT_DIMENSION = {
    # GPT-2's weights are [in, out].
    "attn.c_attn.weight": 1,
    "attn.c_proj.weight": 0,
    "mlp.c_fc.weight": 1,
    "mlp.c_proj.weight": 0,
    "wte.weight": 0,
    "experts.up": 0,
    "experts.down": 0,
    "conv1.weight": 0,
    "conv2.weight": 1,
}


def cut_weights(model: nn.Module, mesh: xs.Mesh, other_axis: str | None = None) -> None:
    """Cuts weights over the axis 'model', and along their largest other dimension over another."""
    for name, parameter in model.named_parameters():
        ends = [end for end in _CUT_DIMENSION if name.endswith(end)]
        if not ends:
            continue
        dim = _CUT_DIMENSION[ends[0]]
        spec: list[str | None] = [None] * parameter.dim()
        spec[dim] = "model"
        if other_axis is not None:
            others = [d for d in range(parameter.dim()) if d != dim]
            spec[max(others, key=lambda d: parameter.shape[d])] = other_axis
        xs.mark_sharding(parameter, mesh, tuple(spec))


def tensor_parallel(model: nn.Module, batch: Batch) -> nn.Module:
    cut_weights(model, TENSOR)
    return model


def fsdp_and_tensor(model: nn.Module, batch: Batch) -> nn.Module:
    cut_weights(model, BOTH, other_axis="fsdp")
    return fsdp(model, batch, mesh=BOTH)


LAYOUTS: dict[str, Callable[[nn.Module, Batch], nn.Module]] = {
    "data": data_parallel,
    "fsdp": fsdp,
    "tensor": tensor_parallel,
    "fsdp_tensor": fsdp_and_tensor,
}
