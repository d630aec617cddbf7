"""torch_xla.distributed.xla_multiprocessing on the single device of these tests."""

import pytest
import torch

import torch_xla.distributed.xla_multiprocessing as xmp


@pytest.mark.parametrize("nprocs", [None, 1])
def test_spawn_calls_the_function_with_its_index(device, nprocs):
    calls = []
    xmp.spawn(lambda index, word: calls.append((index, word)), args=("word",), nprocs=nprocs)
    assert calls == [(0, "word")]


def test_spawn_refuses_other_numbers_of_processes():
    with pytest.raises(ValueError, match="nprocs must be None"):
        xmp.spawn(lambda index: None, nprocs=3)


def test_a_wrapped_model_moves_with_its_parameters(device):
    model = torch.nn.Linear(2, 2)
    moved = xmp.MpModelWrapper(model).to(device)
    assert moved is model
    assert moved.weight.device == device


def test_a_serial_executor_passes_results_and_errors_on():
    executor = xmp.MpSerialExecutor()
    assert executor.run(lambda: 5) == 5
    with pytest.raises(ZeroDivisionError):
        executor.run(lambda: 1 // 0)
    assert executor.run(lambda: 6) == 6
