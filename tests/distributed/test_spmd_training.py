"""Training over 8 devices gives the numbers of one, in one program, with the memory of a part."""

from __future__ import annotations

import copy
import functools
import math

import pytest
import torch
from layouts import LAYOUTS, MODELS
from training import MakeOptimizer, Run, adamw, assert_same, compile_count, train

import torch_xla
import torch_xla.distributed.spmd as xs
from torch_xla.distributed.spmd.debugging import parse_sharding

STEPS = 10


# Adam divides gradients by their size, and so the rounding of those that are nearly zero, of which
# a network of convolutions has some in ten steps.
OPTIMIZERS: dict[str, MakeOptimizer] = {
    "resnet18": functools.partial(torch.optim.AdamW, lr=1e-3, eps=1e-2),
    "gpt2": adamw,
    "mixture": adamw,
}


@pytest.fixture(scope="module", autouse=True)
def quick_to_compile():
    """XLA cuts programs as ever; LLVM spends half of the time of a compilation on speed."""
    torch_xla.set_custom_compile_options({"xla_backend_optimization_level": 0})
    yield
    torch_xla.set_custom_compile_options({})


@functools.cache
def on_one_device(name: str, dtype: torch.dtype) -> Run:
    torch.manual_seed(0)
    return train(MODELS[name](), "cpu", steps=STEPS, dtype=dtype, optimizer=OPTIMIZERS[name])


# In f32 rounding decides which way an activation near zero goes, and ten steps later runs of a
# network of ReLUs differ by a percent, one on CPU and another there with other threads too.
DTYPES = {"resnet18": torch.float64}


def assert_as_on_one_device(name: str, got: Run) -> None:
    exact = on_one_device(name, torch.float64)
    if DTYPES.get(name) == torch.float64:
        assert_same(got, exact, rtol=1e-9, atol=1e-9)
    else:
        assert_same(got, on_one_device(name, torch.float32), rtol=1e-4, atol=1e-5, exact=exact)


def specs(tensors):
    return [torch_xla._XLAC._get_xla_sharding_spec(t) for t in tensors]


def held(tensor) -> int:
    """Bytes of the tensor that the first device holds."""
    return xs.wrap_as_sharded_tensor(tensor.detach()).local_shards[0].data.nbytes


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", MODELS)
def test_trains_as_on_one_device(device, metrics, name, layout):
    torch.manual_seed(0)
    case = MODELS[name]()
    dtype = DTYPES.get(name, torch.float32)
    inner = copy.deepcopy(case.model).to(dtype).to(device)
    batch = {
        key: tensor.to(device, dtype if tensor.is_floating_point() else None)
        for key, tensor in case.batch.items()
    }
    model = LAYOUTS[layout](inner, batch)
    optimizer = OPTIMIZERS[name](model.parameters())
    told = specs(model.parameters())
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = case.loss(model, batch)
        loss.backward()
        optimizer.step()
        torch_xla.sync()
        losses.append(loss.detach())
    assert compile_count() == 1
    # Parameters and states lie as they did.
    kept = specs(model.parameters())
    assert all(now == then for now, then in zip(kept, told, strict=True) if then)
    for parameter, spec in zip(model.parameters(), kept, strict=True):
        state = [t for t in optimizer.state[parameter].values() if t.shape == parameter.shape]
        assert state and set(specs(state)) == {spec}
    state = {key: tensor.detach().cpu() for key, tensor in model.state_dict().items()}
    assert_as_on_one_device(name, Run([loss.item() for loss in losses], state))
    # What is cut takes its part of the memory on each device, and is most of the model.
    cut = {p: spec for p, spec in zip(model.parameters(), kept, strict=True) if "devices=" in spec}
    if layout == "data":
        assert not cut
        return
    for parameter, spec in cut.items():
        parts = parse_sharding(spec).shape[: parameter.dim()]
        assert math.prod(parts) in (2, 4, 8)
        sizes = [math.ceil(size / n) for size, n in zip(parameter.shape, parts, strict=True)]
        assert held(parameter) == math.prod(sizes) * parameter.element_size()
    whole = sum(p.nbytes for p in cut)
    assert whole > 0.5 * sum(p.nbytes for p in model.parameters())
    even = [p for p in cut if all(size % 8 == 0 for size in p.shape if size > 8)]
    eighths = {"fsdp": 8, "tensor": 8, "fsdp_tensor": 4}[layout]
    assert sum(map(held, even)) <= sum(p.nbytes for p in even) / eighths
