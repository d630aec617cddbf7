"""Every optimizer of PyTorch's `optim_db`, with each of its flags, against CPU."""

from __future__ import annotations

import pytest
import torch
from harness import DEVICE
from runs import Run, compare
from selection import take
from torch.testing._internal.common_optimizers import optim_db
from torch.utils._pytree import tree_map

import torch_xla

STEPS = 3
DTYPES = (torch.float32, torch.float64)


def cases(variant: str, wants=lambda info: True) -> list:
    return take(
        variant,
        [
            (info, info.optim_cls.__name__, dtype)
            for info in optim_db
            if wants(info)
            for dtype in DTYPES
        ],
        sample_of=4,
    )


def implementations(info) -> list[dict]:
    """The default one, and each that the optimizer can be told to use."""
    return [{}, *({name: True} for name in info.supported_impls if name != "capturable")]


def train(info, optim_input, choice: dict, dtype: torch.dtype, device) -> list:
    generator = torch.Generator().manual_seed(0)

    def parameter(*sizes):
        made = torch.randn(*sizes, generator=generator, dtype=torch.float64).to(dtype)
        return made.to(device).requires_grad_()

    sparse = info.only_supports_sparse_grads
    parameters = [
        parameter(4, 3),
        parameter(3, 5) if "Muon" in info.optim_cls.__name__ else parameter(3),
    ]
    targets = [parameter(*p.size()).detach() for p in parameters]
    kwargs = {**optim_input.kwargs, **choice}
    for name in ("lr", "betas"):
        if isinstance(kwargs.get(name), torch.Tensor):
            kwargs[name] = kwargs[name].to(device)
    optimizer = info.optim_cls(parameters, **kwargs)

    def closure():
        optimizer.zero_grad()
        loss = sum(((p - t) ** 2).sum() for p, t in zip(parameters, targets, strict=True))
        loss.backward()
        if sparse:
            for p in parameters:
                p.grad = p.grad.to_sparse()
        return loss

    for _ in range(STEPS):
        if info.step_requires_closure:
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
        if torch.device(device).type == "xla":
            torch_xla.sync()
    state = optimizer.state_dict()["state"]
    return [[p.detach() for p in parameters], tree_map(_on_device(device), state)]


def _on_device(device):
    # A step count is on the host for some devices; numbers are compared as tensors are.
    def move(leaf):
        if isinstance(leaf, float):
            leaf = torch.tensor(leaf)
        return leaf.detach().to(device) if isinstance(leaf, torch.Tensor) else leaf

    return move


@pytest.mark.parametrize("info, dtype", cases("optim_flags"))
def test_flags(info, dtype):
    runs = []
    for optim_input in info.optim_inputs_func("cpu", dtype):
        if optim_input.kwargs.get("capturable"):
            continue  # a matter of CUDA graphs, refused for CPU tensors
        for choice in implementations(info):

            def call(device, optim_input=optim_input, choice=choice):
                torch.manual_seed(0)
                return train(info, optim_input, choice, dtype, device)

            runs.append(
                Run(call, f"{optim_input.desc} {optim_input.kwargs} {choice}", strides=False)
            )
    compare(runs, dtype)


@pytest.mark.parametrize("info, dtype", cases("optim_errors", lambda i: i.optim_error_inputs_func))
def test_errors(info, dtype):
    """What an optimizer refuses on CPU it refuses on xla, with the same type of exception."""
    problems = []
    for error_input in info.optim_error_inputs_func("cpu", dtype):
        given = error_input.optimizer_error_input
        raised = []
        for device in ("cpu", DEVICE):
            moved = tree_map(
                lambda leaf, device=device: (
                    leaf.detach().to(device).requires_grad_(leaf.requires_grad)
                    if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
                    else leaf
                ),
                given.params,
            )
            try:
                info.optim_cls(moved, **given.kwargs).step()
            except Exception as error:
                error.__traceback__ = None
                raised.append(error)
            else:
                raised.append(None)
        expected, got = raised
        if expected is not None and type(got) is not type(expected):
            problems.append(f"{given.desc}: expected {expected!r}, got {got!r}")
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)
