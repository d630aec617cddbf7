"""Batches that go to the devices part by part."""

import collections
from collections import UserDict

import pytest
import torch

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.spmd as xs

MESH = xs.Mesh(range(8), (8,), ("data",))
ROWS = "{devices=[8]0,1,2,3,4,5,6,7}"
MATRIX_ROWS = "{devices=[8,1]0,1,2,3,4,5,6,7}"


def spec_of(t):
    return torch_xla._XLAC._get_xla_sharding_spec(t)


def batches(count):
    return [(torch.full((16, 3), float(i)), torch.full((16,), i)) for i in range(count)]


@pytest.mark.parametrize("minibatch", [False, True])
@pytest.mark.parametrize("threads", [1, 4])
def test_one_spec_for_all(device, minibatch, threads):
    spec = xs.ShardingSpec(MESH, ("data", None), minibatch=minibatch)
    loader = pl.MpDeviceLoader(
        batches(5), device, input_sharding=spec, host_to_device_transfer_threads=threads
    )
    seen = 0
    for i, (images, labels) in enumerate(loader):
        assert spec_of(images) == MATRIX_ROWS
        assert spec_of(labels) in ("", "{replicated}")  # of other dimensions
        torch.testing.assert_close(images.cpu(), torch.full((16, 3), float(i)))
        torch.testing.assert_close(labels.cpu(), torch.full((16,), i))
        seen += 1
    assert seen == 5


def test_a_spec_for_each_key(device):
    data = [{"x": x, "y": y, "name": "batch"} for x, y in batches(2)]
    sharding = {
        "x": xs.ShardingSpec(MESH, ("data", None)),
        "y": xs.ShardingSpec(MESH, ("data",)),
        "name": None,
    }
    for i, batch in enumerate(pl.MpDeviceLoader(data, device, input_sharding=sharding)):
        assert spec_of(batch["x"]) == MATRIX_ROWS
        assert spec_of(batch["y"]) == ROWS
        assert batch["name"] == "batch"
        assert batch["y"].tolist() == [i] * 16
        assert batch["y"].sum().item() == 16 * i


def test_dicts_keep_their_type(device):
    sent = xm.send_cpu_data_to_device(
        UserDict(x=torch.ones(8)), device, {"x": xs.ShardingSpec(MESH, ("data",))}
    )
    assert type(sent) is UserDict and spec_of(sent["x"]) == ROWS


def test_nested_data(device):
    spec = xs.ShardingSpec(MESH, ("data",))
    sent = xm.send_cpu_data_to_device([torch.ones(8), {"a": (torch.ones(8), 3)}], device, spec)
    assert spec_of(sent[0]) == spec_of(sent[1]["a"][0]) == ROWS and sent[1]["a"][1] == 3
    sent = xm.send_cpu_data_to_device({"in": [torch.ones(8)]}, device, {"in": spec})
    assert spec_of(sent["in"][0]) == ROWS


def test_keys_that_are_missing(device):
    spec = xs.ShardingSpec(MESH, ("data",))
    with pytest.raises(ValueError, match=r"no entry for \['y'\]"):
        xm.send_cpu_data_to_device({"x": torch.ones(8), "y": torch.ones(8)}, device, {"x": spec})
    with pytest.raises(ValueError, match="of type list is not"):
        xm.send_cpu_data_to_device([torch.ones(8)], device, {"x": spec})


def test_batches_that_cannot_be_cut(device):
    spec = xs.ShardingSpec(MESH, ("data",))
    with pytest.raises(ValueError, match="into 8 parts and has only 5"):
        list(pl.MpDeviceLoader([torch.ones(5)], device, input_sharding=spec))


def test_last_batches_that_do_not_divide(device):
    spec = xs.ShardingSpec(MESH, ("data",))
    loader = pl.MpDeviceLoader([torch.ones(16), torch.ones(11)], device, input_sharding=spec)
    assert [batch.sum().item() for batch in loader] == [16.0, 11.0]


def test_specs_are_checked_at_once():
    with pytest.raises(ValueError, match="no axis 'rows'"):
        xs.ShardingSpec(MESH, ("rows",))
    with pytest.raises(ValueError, match="minibatch needs a mesh axis along the first"):
        xs.ShardingSpec(MESH, (None, "data"), minibatch=True)
    with pytest.raises(TypeError, match="a Mesh, not NoneType"):
        xs.ShardingSpec(None, ("data",))


def test_specs_say_where_they_apply():
    spec = xs.ShardingSpec(MESH, ("data", None))
    assert spec.can_apply(torch.ones(8, 2)) and not spec.can_apply(torch.ones(8))
    assert str(spec.xla_spec(torch.ones(8, 2))) == MATRIX_ROWS
    assert spec.xla_spec(torch.ones(8)) is None
    t = torch.ones(8, 2).to("xla")
    spec.apply(t)
    assert spec_of(t) == MATRIX_ROWS


Pair = collections.namedtuple("Pair", "x y")


@pytest.mark.parametrize("kind", [tuple, list, Pair._make])
def test_a_spec_for_each_part(device, kind):
    batch = kind([torch.ones(8, 2), torch.ones(8)])
    specs = [xs.ShardingSpec(MESH, ("data", None)), xs.ShardingSpec(MESH, ("data",))]
    ((x, y),) = got = list(pl.MpDeviceLoader([batch], device, input_sharding=specs))
    assert type(got[0]) is type(batch)
    assert spec_of(x) == MATRIX_ROWS and spec_of(y) == str(specs[1].xla_spec(y))
    with pytest.raises(ValueError, match=r"for 1 parts, and the data of type .* not as many"):
        xm.send_cpu_data_to_device(batch, device, specs[:1])
    with pytest.raises(ValueError, match="for 2 parts, and the data of type Tensor"):
        xm.send_cpu_data_to_device(batch[0], device, specs)


def test_a_spec_for_no_tensor(device):
    spec = xs.ShardingSpec(MESH, ("data", None, None))
    with pytest.raises(
        ValueError, match=r"for none of the tensors, of shapes \[\(8, 2\), \(8,\)\]"
    ):
        list(pl.MpDeviceLoader([(torch.ones(8, 2), torch.ones(8))], device, input_sharding=spec))


@pytest.mark.parametrize("wrong", [3, ("data",), {"x": "data"}])
def test_what_is_no_spec(device, wrong):
    with pytest.raises(TypeError, match=r"a .*ShardingSpec, or a dict or list of them"):
        pl.MpDeviceLoader([torch.ones(8)], device, input_sharding=wrong)
    with pytest.raises(TypeError, match=r"a .*ShardingSpec, or a dict or list of them"):
        xm.send_cpu_data_to_device([torch.ones(8)], device, wrong)


def test_announcing_is_for_whole_batches(device):
    spec = xs.ShardingSpec(MESH, ("data",))
    with pytest.raises(ValueError, match="announce"):
        pl.ParallelLoader([torch.ones(8)], [device], input_sharding=spec, announce=print)


def test_steps_without_collectives_of_ours(device, metrics):
    """xm.optimizer_step sees one replica: XLA adds gradients up."""
    weight = torch.nn.Parameter(torch.zeros(3, device=device))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    spec = xs.ShardingSpec(MESH, ("data", None))
    for images, _ in pl.MpDeviceLoader(batches(3), device, input_sharding=spec):
        (images @ weight).mean().backward()
        xm.optimizer_step(optimizer)
        optimizer.zero_grad()
    assert weight.tolist() == [-3.0, -3.0, -3.0]
