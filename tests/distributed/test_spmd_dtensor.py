"""torch.distributed.tensor over xla: its meshes, placements and modules, in SPMD mode."""

import copy

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import (
    Partial,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
)
from torch.testing._internal.distributed.fake_pg import FakeStore
from training import compile_count

import torch_xla
import torch_xla.distributed.spmd as xs


def spec_of(t):
    return torch_xla._XLAC._get_xla_sharding_spec(t)


def mesh_2d():
    return DeviceMesh("xla", torch.arange(8).view(2, 4), mesh_dim_names=("data", "model"))


def test_meshes():
    mesh = xs.convert_to_xla_mesh(mesh_2d())
    assert mesh == xs.Mesh(range(8), (2, 4), ("data", "model"))
    assert xs.convert_to_xla_mesh(mesh) is mesh
    assert xs.convert_to_xla_mesh(DeviceMesh("xla", list(range(8)))).axis_names is None
    with pytest.raises(ValueError, match="4 devices, while programs run on all 8"):
        xs.convert_to_xla_mesh(DeviceMesh("xla", list(range(4))))


@pytest.mark.parametrize(
    "placements, spec",
    [
        ([Replicate(), Replicate()], (None, None)),
        ([Shard(0), Shard(1)], (0, 1)),
        ([Shard(1), Shard(0)], (1, 0)),
        ([Shard(-1), Shard(-1)], (None, (0, 1))),
        ([Replicate(), Shard(0)], (1, None)),
    ],
    ids=str,
)
def test_placements(placements, spec):
    t = torch.arange(64.0).reshape(8, 8)
    assert xs.convert_to_xla_partition_spec(t, placements) == spec
    cut = distribute_tensor(t, mesh_2d(), placements)
    assert isinstance(cut, xs.XLAShardedTensor)
    assert spec_of(cut) == str(xs.convert_to_xla_mesh(mesh_2d()).get_op_sharding(spec))
    positive = [Shard(p.dim % 2) if isinstance(p, Shard) else p for p in placements]
    assert list(cut.placements) == positive
    assert cut.device_mesh.mesh_dim_names == ("data", "model")
    assert torch.equal(cut.full_tensor().cpu(), t)


@pytest.mark.parametrize(
    "placements, message",
    [
        ([Partial(), Replicate()], "cut .Shard. or whole"),
        ([Shard(2), Replicate()], "no such dimension"),
        ([Shard(0)], "1 placements for a mesh of 2 axes"),
    ],
    ids=str,
)
def test_placements_that_cannot_be(placements, message):
    with pytest.raises(ValueError, match=message):
        distribute_tensor(torch.ones(8, 8), mesh_2d(), placements)


def test_arguments_of_other_kinds():
    with pytest.raises(TypeError, match="in a sequence; got"):
        distribute_tensor(torch.ones(8, 8), mesh_2d(), Shard(0))
    with pytest.raises(TypeError, match="a module, not int"):
        xs.xla_distribute_module(3, mesh_2d())
    with pytest.raises(TypeError, match="a mesh is needed, not int"):
        xs.convert_to_xla_mesh(3)


def test_leaves_only():
    t = torch.ones(8, requires_grad=True) * 2
    with pytest.raises(RuntimeError, match="leaf"):
        xs.xla_distribute_tensor(t, mesh_2d())


def test_by_default_whole():
    t = torch.ones(8, 8, requires_grad=True)
    whole = xs.xla_distribute_tensor(t, mesh_2d())
    assert spec_of(whole) == "{replicated}" and whole.requires_grad and whole.is_leaf
    with pytest.raises(ValueError, match="set_global_mesh"):
        xs.xla_distribute_tensor(t)


@pytest.mark.parametrize("name", ["zeros", "ones", "empty", "full", "rand", "randn"])
def test_made_where_they_lie(name):
    size, value = (8, 6), (2.5,) if name == "full" else ()
    make, of_plain = getattr(torch.distributed.tensor, name), getattr(torch, name)
    cut = make(
        size,
        *value,
        device_mesh=mesh_2d(),
        placements=[Shard(1), Shard(0)],
        dtype=torch.bfloat16,
        requires_grad=True,
    )
    assert spec_of(cut) == str(xs.convert_to_xla_mesh(mesh_2d()).get_op_sharding((1, 0)))
    assert cut.shape == size and cut.dtype == torch.bfloat16 and cut.requires_grad and cut.is_leaf
    if name in ("zeros", "ones", "full"):
        assert torch.equal(cut.detach().cpu(), of_plain(size, *value, dtype=torch.bfloat16))
    elif name != "empty":
        assert cut.detach().cpu().unique().numel() > 16
    assert spec_of(make(size, *value, device_mesh=mesh_2d())) == "{replicated}"
    with pytest.raises(ValueError, match="1 placements for a mesh of 2 axes"):
        make(size, *value, device_mesh=mesh_2d(), placements=[Shard(0)])


def test_redistribute():
    t = torch.arange(64.0).reshape(8, 8)
    cut = distribute_tensor(t, mesh_2d(), [Shard(0), Replicate()])
    other = cut.redistribute(placements=[Replicate(), Shard(1)])
    assert isinstance(other, xs.XLAShardedTensor)
    assert list(other.placements) == [Replicate(), Shard(1)]
    assert list(cut.placements) == [Shard(0), Replicate()]
    other.mul_(2)
    cut.full_tensor().mul_(3)
    torch_xla.sync()
    assert spec_of(other).startswith("{devices=[1,4,2]")
    assert torch.equal(cut.cpu(), t) and torch.equal(other.cpu(), 2 * t)
    along = init_device_mesh("xla", (2, 4), mesh_dim_names=("a", "b"))["b"]
    assert list(cut.redistribute(along, [Shard(1)]).placements) == [Replicate(), Shard(1)]
    with pytest.raises(ValueError, match="placements are missing"):
        cut.redistribute()


def test_full_tensors():
    t = torch.arange(64.0).reshape(8, 8)
    cut = distribute_tensor(t.clone().requires_grad_(), mesh_2d(), [Shard(0), Shard(1)])
    cut.full_tensor().pow(2).sum().backward()
    assert torch.equal(cut.grad.cpu(), 2 * t)
    whole = distribute_tensor(t, mesh_2d(), [Replicate(), Replicate()])
    whole.full_tensor().zero_()  # which is no copy, as of a DTensor that is whole
    assert not whole.any()


def test_layers_that_gather_their_weight(metrics):
    """A parameter that is used otherwise than it lies stays where it is, in one program."""
    t = torch.randn(16, 8)
    weight = nn.Parameter(distribute_tensor(t, mesh_2d(), [Shard(0), Replicate()]))
    expected = nn.Parameter(t.clone())
    optimizers = [torch.optim.AdamW([p], lr=1e-2) for p in (weight, expected)]
    x = torch.randn(4, 16)
    on_xla = x.to("xla")
    for _ in range(3):
        whole = weight.redistribute(placements=[Replicate(), Replicate()])
        (on_xla @ whole).pow(2).mean().backward()
        (x @ expected).pow(2).mean().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        torch_xla.sync()
        assert list(weight.placements) == [Shard(0), Replicate()]
    assert compile_count() == 1
    torch.testing.assert_close(weight.detach().cpu(), expected.detach())


def test_dtensors_of_other_devices():
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        other = distribute_tensor(torch.ones(4), init_device_mesh("cpu", (2,)), [Shard(0)])
        with pytest.raises(ValueError, match=r"a plain tensor, not a DTensor over .*full_tensor"):
            distribute_tensor(other, mesh_2d(), [Shard(0), Replicate()])
    finally:
        torch.distributed.destroy_process_group()


def test_orders_that_placements_cannot_say():
    t = torch.ones(8).to("xla")
    mesh = xs.Mesh(range(8), (2, 4), ("data", "model"))
    cut = xs.mark_sharding(t, mesh, (("model", "data"),))
    with pytest.raises(ValueError, match="placements cannot say"):
        _ = cut.placements


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 32)
        self.down = nn.Linear(32, 8)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


def tensor_parallel(name, module, mesh):
    if isinstance(module, nn.Linear):
        dim = 0 if name == "up" else 1
        weight = distribute_tensor(module.weight, mesh, [Replicate(), Shard(dim)])
        module.register_parameter("weight", nn.Parameter(weight))


def test_modules_train_alike():
    plain = Mlp()
    mesh = init_device_mesh("xla", (2, 4), mesh_dim_names=("data", "model"))
    seen = []

    def input_fn(module, inputs, mesh):
        (x,) = inputs
        return (distribute_tensor(x, mesh, [Shard(0), Replicate()]),)

    def output_fn(module, output, mesh):
        seen.append(output.shape)
        return output * 2

    model = distribute_module(copy.deepcopy(plain), mesh, tensor_parallel, input_fn, output_fn)
    assert spec_of(model.up.weight).startswith("{devices=[4,1,2]")
    assert spec_of(model.down.weight).startswith("{devices=[1,4,2]")
    assert spec_of(model.up.bias) == "{replicated}"
    assert isinstance(model.up.weight, nn.Parameter)
    x = torch.randn(8, 16)
    optimizers = [torch.optim.AdamW(m.parameters(), lr=0.1) for m in (plain, model)]
    for _ in range(3):
        outputs = [plain(x) * 2, model(x.to("xla"))]
        for output, optimizer in zip(outputs, optimizers, strict=True):
            (output**2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        torch_xla.sync()
        torch.testing.assert_close(
            outputs[1].detach().cpu(), outputs[0].detach(), rtol=1e-4, atol=1e-5
        )
    assert seen == [(8, 8)] * 3
    # And back.
    plain_again = Mlp()
    plain_again.load_state_dict(model.state_dict())
    for a, b in zip(plain_again.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_auto_policy_cuts_what_is_large():
    model = nn.Sequential(nn.Linear(64, 40), nn.Linear(40, 4), nn.LayerNorm(4))
    plain = copy.deepcopy(model)
    x = torch.randn(8, 64)
    model = distribute_module(model, mesh_2d(), xs.auto_policy)
    assert spec_of(model[0].weight) == "{devices=[1,8]0,1,2,3,4,5,6,7}"
    assert spec_of(model[1].weight) == "{replicated}"
    torch.testing.assert_close(model(x.to("xla")).detach().cpu(), plain(x).detach())


def test_a_module_is_whole_by_default():
    model = xs.xla_distribute_module(nn.BatchNorm1d(8), mesh_2d())
    assert {spec_of(t) for t in [*model.parameters(), *model.buffers()]} == {"{replicated}"}
