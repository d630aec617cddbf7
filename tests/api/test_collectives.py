"""Collectives of one replica, for which they are exact."""

import pytest
import torch

import torch_xla.core.functions as xf
import torch_xla.core.xla_model as xm


@pytest.fixture
def x(device):
    return torch.arange(6.0, device=device).reshape(2, 3)


@pytest.mark.parametrize("op", ["sum", "mul", "min", "max"])
@pytest.mark.parametrize("groups", [None, [[0]]])
def test_all_reduce(x, op, groups):
    y = xm.all_reduce(op, x, scale=0.5, groups=groups)
    assert y.tolist() == (x * 0.5).tolist()
    same = xm.all_reduce(op, x)
    same.add_(1)
    assert x[0, 0].item() == 0, "the result must not share memory with the input"


def test_all_reduce_in_place(x):
    expected = (x * 0.5).tolist()
    assert xm.all_reduce(xm.REDUCE_SUM, [x], scale=0.5) is None
    assert x.tolist() == expected


def test_the_others(x):
    assert xm.all_gather(x, dim=1).tolist() == x.tolist()
    output = torch.zeros_like(x)
    xm.all_gather(x, output=output)
    assert output.tolist() == x.tolist()
    assert [y.tolist() for y in xm.all_gather([x, x + 1])] == [x.tolist(), (x + 1).tolist()]
    assert xm.all_to_all(x, 0, 1, 1).tolist() == x.tolist()
    assert xm.reduce_scatter("sum", x, 2.0, 0, 1).tolist() == (x * 2).tolist()
    assert xm.collective_permute(x, [[0, 0]]).tolist() == x.tolist()
    assert xm.collective_permute(x, []).tolist() == torch.zeros(2, 3).tolist()
    assert xm.collective_broadcast([x]) is None
    gathered = xm.all_gather_bucketized([x, x + 1], bucket_cap_mb=1)
    assert [y.tolist() for y in gathered] == [x.tolist(), (x + 1).tolist()]
    scattered = xm.reduce_scatter_bucketized("sum", [x, x], 0.5, 0, 1)
    assert [y.tolist() for y in scattered] == [(x * 0.5).tolist()] * 2


@pytest.mark.parametrize(
    "call",
    [
        lambda x: xm.all_reduce("average", x),
        lambda x: xm.all_reduce("sum", x, groups=[[0, 1]]),
        lambda x: xm.all_to_all(x, 0, 1, 2),
        lambda x: xm.reduce_scatter("sum", x, 1.0, 0, 2),
        lambda x: xm.collective_permute(x, [[0, 1]]),
        lambda x: xm.collective_broadcast([x], root_ordinal=1),
        lambda x: xm.all_gather(x, output=torch.zeros(1, device=x.device)),
    ],
)
def test_replicas_that_do_not_exist(x, call):
    with pytest.raises(ValueError):
        call(x)


def test_gathering_along_no_dimension(x):
    with pytest.raises(IndexError):
        xm.all_gather(x, dim=2)


def test_gradients(device):
    x = torch.ones(2, 2, device=device, requires_grad=True)
    (xf.all_gather(x, 1) * 3 + xf.all_reduce("sum", x, scale=0.5)).sum().backward()
    assert x.grad.tolist() == [[3.5, 3.5], [3.5, 3.5]]


def test_gradients_of_gradients(device):
    x = torch.ones(2, 2, device=device, requires_grad=True)
    total = (xf.all_gather(x, 1) ** 3).sum() + (xf.all_reduce("sum", x, scale=0.5) ** 3).sum()
    (slope,) = torch.autograd.grad(total, x, create_graph=True)
    slope.sum().backward()
    assert x.grad.tolist() == [[6.75, 6.75], [6.75, 6.75]]


def test_rendezvous_gives_back_what_was_brought():
    assert xm.rendezvous("tag", b"payload") == [b"payload"]
    assert xm.xla_rendezvous(b"payload") == [b"payload"]
    with pytest.raises(TypeError, match="bytes"):
        xm.rendezvous("tag", "text")


def test_mesh_reduce_takes_any_object(x):
    result = xm.mesh_reduce("tag", {"loss": x, "names": {"a"}}, lambda parts: parts[0])
    assert result["loss"].device.type == "cpu"
    assert result["loss"].tolist() == x.tolist()
    assert result["names"] == {"a"}


def test_do_on_ordinals(x):
    seen = []
    xm.do_on_ordinals(lambda t: seen.append(t.device.type), data=(x,))
    xm.do_on_ordinals(seen.append, data=("no",), ordinals=(1,))
    assert seen == ["cpu"]


def test_set_replication(device):
    xm.set_replication(device, [device])
    xm.set_replication(device, [])
    with pytest.raises(NotImplementedError, match="CPU_NUM_DEVICES"):
        xm.set_replication(device, ["xla:0", "xla:1"])


def test_broadcast_master_param(device):
    model = torch.nn.Linear(2, 2).to(device)
    before = model.weight.tolist()
    xm.broadcast_master_param(model)
    assert model.weight.tolist() == before
