"""Moving data: save, send_cpu_data_to_device, arenas, serialization."""

import io
from collections import OrderedDict, namedtuple

import pytest
import torch

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.utils.serialization as xser
from torch_xla.utils import utils as xu


def test_save_stores_cpu_tensors(device, tmp_path):
    model = torch.nn.Linear(3, 2).to(device)
    path = tmp_path / "model.pt"
    xm.save({"model": model.state_dict(), "epoch": 3}, path)
    loaded = torch.load(path)
    assert loaded["epoch"] == 3
    assert all(tensor.device.type == "cpu" for tensor in loaded["model"].values())
    torch.testing.assert_close(loaded["model"]["weight"], model.weight.detach().cpu())
    assert model.weight.device == device, "saving must leave the data where it is"


def test_save_into_a_file_object(device):
    file = io.BytesIO()
    xm.save(torch.ones(2, device=device), file)
    file.seek(0)
    assert torch.load(file).tolist() == [1.0, 1.0]


def test_a_tensor_that_occurs_twice_stays_one(device):
    x = torch.ones(2, device=device)
    result = xm._maybe_convert_to_cpu([x, {"again": x}])
    assert result[0] is result[1]["again"]
    assert result[0].device.type == "cpu"


def test_serialization_round_trip(device, tmp_path):
    data = {"a": torch.arange(3.0, device=device), "b": [torch.ones(2, device=device), "text"]}
    path = tmp_path / "checkpoint"
    for _ in range(2):  # the second replaces the first
        xser.save(data, path)
    loaded = xser.load(path)
    assert loaded["a"].tolist() == [0.0, 1.0, 2.0]
    assert loaded["b"][0].tolist() == [1.0, 1.0]
    assert loaded["b"][1] == "text"


Pair = namedtuple("Pair", "first second")


def test_send_cpu_data_to_device_keeps_structure(device):
    data = {
        "tensor": torch.arange(4),
        "tuple": (torch.ones(2), 3, "text", None),
        "named": Pair(torch.zeros(1), [torch.ones(1, dtype=torch.bfloat16)]),
        "ordered": OrderedDict(x=torch.ones(2, 2)),
        "already there": torch.ones(1, device=device),
    }
    sent = xm.send_cpu_data_to_device(data, device)
    assert sent["tensor"].device == device and sent["tensor"].dtype == torch.int64
    assert sent["tuple"][0].device == device and sent["tuple"][1:] == (3, "text", None)
    assert isinstance(sent["named"], Pair)
    assert sent["named"].second[0].dtype == torch.bfloat16
    assert isinstance(sent["ordered"], OrderedDict) and sent["ordered"]["x"].device == device
    assert sent["already there"] is data["already there"]
    assert data["tensor"].device.type == "cpu", "the original must stay as it is"
    with pytest.raises(RuntimeError, match="input_sharding: call"):
        xm.send_cpu_data_to_device(data, device, input_sharding="anything")


def test_sent_data_is_a_copy(device):
    x = torch.ones(3)
    (sent,) = xm.send_cpu_data_to_device([x], device)
    x.zero_()
    assert sent.tolist() == [1.0, 1.0, 1.0]


def test_gradients_are_required_where_they_were(device):
    (sent,) = xm.send_cpu_data_to_device([torch.ones(2, requires_grad=True)], device)
    assert sent.requires_grad and sent.is_leaf


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bool, torch.complex64])
def test_strided_and_empty_tensors_travel(device, dtype):
    x = torch.arange(24).reshape(2, 3, 4).to(dtype)
    for view in (x.transpose(0, 2), x[:, 1:, ::2], x[:0]):
        (sent,) = xm.send_cpu_data_to_device([view], device)
        assert sent.tolist() == view.tolist()


class Wrapped(xu.DataWrapper):
    def __init__(self, tensor):
        self.tensor = tensor

    def get_tensors(self):
        return [self.tensor]

    def from_tensors(self, tensors):
        return Wrapped(*tensors)


def test_data_wrappers(device):
    sent = xm.send_cpu_data_to_device({"w": Wrapped(torch.ones(2))}, device)
    assert sent["w"].tensor.device == device


def test_arena_checks_what_it_gets():
    arena = xm.ToXlaTensorArena(lambda tensors: [], torch.is_tensor)
    with pytest.raises(ValueError, match="convert_fn"):
        arena.transform([torch.ones(1)])
    assert arena.transform(["no tensor"]) == ["no tensor"]


def test_view_sharing(device):
    x = torch.ones(4, device=device)
    xm.check_view_sharing({"a": x, "b": [x, torch.ones(2, device=device)]})
    with pytest.raises(RuntimeError, match="share memory"):
        xm.check_view_sharing([x, x[1:]])


def test_tensor_ids_name_memory(device):
    identify = torch_xla._XLAC._xla_get_tensor_id
    x, y = torch.ones(4, device=device), torch.ones(4, device=device)
    assert identify(x) == identify(x.view(2, 2)) != identify(y)
    with pytest.raises(RuntimeError, match="xla tensor"):
        identify(torch.ones(1))


def test_rate_tracker():
    tracker = xm.RateTracker(smooth_factor=0.5)
    assert tracker.rate() == 0.0
    tracker.add(10)
    first = tracker.rate()
    assert first > 0
    assert tracker.rate() == first, "nothing was added since"
    assert tracker.global_rate() > 0


def test_master_print(capsys):
    import sys

    xm.master_print("one", 2, fd=sys.stderr)
    assert capsys.readouterr().err == "one 2\n"


def test_sample_generator():
    generator = xu.SampleGenerator(1, 3)
    assert len(generator) == 3 and list(generator) == [1, 1, 1] == list(generator)


def test_nested_data_with_cycles():
    data = {"x": 1}
    data["self"] = data
    seen = []
    xu.for_each_instance(data, lambda v: isinstance(v, int), seen.append)
    assert seen == [1]


def test_environment_values(monkeypatch):
    monkeypatch.setenv("TXLA_TEST", "7")
    assert xu.getenv_as("TXLA_TEST", int) == 7
    assert xu.getenv_as("TXLA_TEST", bool) is True
    monkeypatch.setenv("TXLA_TEST", "seven")
    with pytest.raises(ValueError, match="TXLA_TEST"):
        xu.getenv_as("TXLA_TEST", int)
    assert xu.check_env_flag("TXLA_MISSING", "yes")
