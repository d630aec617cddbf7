"""Training the same models with torch.compile around them: the numbers of CPU eager."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from training import assert_same, train, trained_on_cpu
from zoo import CASES

import torch_xla.debug.metrics as met


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_trains_as_on_cpu(device, no_fallback, name):
    torch._dynamo.reset()
    torch.manual_seed(0)
    case = CASES[name]()
    compiled = {}

    def loss(model, batch):
        if id(model) not in compiled:
            compiled[id(model)] = torch.compile(model, backend="openxla")
        return case.loss(compiled[id(model)], batch)

    got = train(dataclasses.replace(case, loss=loss), device)
    assert_same(
        got,
        trained_on_cpu(name, torch.float32),
        rtol=1e-4,
        atol=1e-5,
        exact=trained_on_cpu(name, torch.float64),
    )
    # Dynamo leaves recurrent modules to eager mode; all else is a forward and a backward program.
    launches = met.counter_value("CompiledGraph") or 0
    assert launches >= (0 if "lstm" in name or "gru" in name else 10)
