"""Every module of `torch.nn` in PyTorch's `module_db` against CPU: train and eval, forward and
backward, and a round trip of its state."""

from __future__ import annotations

import pytest
import torch
from harness import DEVICE, copy_to
from runs import Run, compare, cotangents, wanted
from selection import take
from torch.nn.parameter import is_lazy
from torch.testing._internal.common_modules import module_db

import torch_xla

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64)


def cases(variant: str) -> list:
    return take(
        variant,
        [
            (module, module.formatted_name, dtype)
            for module in module_db
            for dtype in DTYPES
            if dtype in module.supported_dtypes("cpu")
        ],
        sample_of=30,
    )


def inputs(info, dtype: torch.dtype, training: bool) -> list:
    torch.manual_seed(0)
    return list(
        info.module_inputs_func(
            info, device="cpu", dtype=dtype, requires_grad=True, training=training
        )
    )[:6]


def build(info, given, dtype: torch.dtype, training: bool) -> torch.nn.Module:
    """The module on CPU, in the state of a fixed seed."""
    torch.manual_seed(0)
    constructor = given.constructor_input
    module = info.module_cls(*constructor.args, **constructor.kwargs).to(dtype).train(training)
    if any(is_lazy(parameter) for parameter in module.parameters()):
        # Parameters made where the input is would be other draws on each device.
        with torch.no_grad():
            module(*copy_to(given.forward_input.args, "cpu"))
    return module


def run_of(info, given, dtype: torch.dtype, training: bool) -> Run:
    def call(device):
        module = build(info, given, dtype, training).to(device)
        args = copy_to(given.forward_input.args, device)
        kwargs = copy_to(given.forward_input.kwargs, device)
        torch.manual_seed(0)
        result = module(*args, **kwargs)
        outputs = wanted(result)
        inputs = [*wanted((args, kwargs)), *wanted(list(module.parameters()))]
        gradients = (
            torch.autograd.grad(outputs, inputs, cotangents(outputs), allow_unused=True)
            if outputs and inputs
            else []
        )
        return result, gradients, dict(module.state_dict())

    # What drops elements draws them.
    drawn = training and ("Dropout" in info.name or _drops(given))
    return Run(call, f"{given.desc or info.name}", values=not drawn, strides=False)


def _drops(given) -> bool:
    constructor = given.constructor_input
    numbers = [constructor.kwargs.get("dropout"), *constructor.args]
    return any(isinstance(number, float) and 0 < number < 1 for number in numbers)


@pytest.mark.parametrize("info, dtype", cases("module_train"))
def test_train(info, dtype):
    compare([run_of(info, given, dtype, True) for given in inputs(info, dtype, True)], dtype)


@pytest.mark.parametrize("info, dtype", cases("module_eval"))
def test_eval(info, dtype):
    compare([run_of(info, given, dtype, False) for given in inputs(info, dtype, False)], dtype)


@pytest.mark.parametrize("info, dtype", cases("module_state"))
def test_state_dict(info, dtype):
    """State that goes to the device, back, and into a fresh module there, is the same."""
    for given in inputs(info, dtype, True):
        module = build(info, given, dtype, True)
        expected = {key: value.clone() for key, value in module.state_dict().items()}
        on_device = module.to(DEVICE)
        state = {key: value.cpu() for key, value in on_device.state_dict().items()}
        fresh = build(info, given, dtype, True).to(DEVICE)
        with torch.no_grad():
            for parameter in fresh.parameters():
                parameter.zero_()
        fresh.load_state_dict(state)
        torch_xla.sync()
        assert list(state) == list(expected)
        for key, value in fresh.state_dict().items():
            assert value.device.type == "xla"
            assert torch.equal(value.cpu(), expected[key]), key
