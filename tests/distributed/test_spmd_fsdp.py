"""SpmdFullyShardedDataParallel over 8 devices."""

import copy
import functools

import pytest
import torch
from torch import nn

import torch_xla
import torch_xla.distributed.spmd as xs
from torch_xla.distributed.fsdp import checkpoint_module
from torch_xla.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch_xla.experimental.spmd_fully_sharded_data_parallel import SpmdFullyShardedDataParallel

MESH = xs.Mesh(range(8), (8, 1), ("fsdp", "model"))


def spec_of(t):
    return torch_xla._XLAC._get_xla_sharding_spec(t)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 32)
        self.down = nn.Linear(32, 16)

    def forward(self, x, scale=1.0):
        return x + scale * self.down(torch.relu(self.up(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.norm = nn.BatchNorm1d(16)
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        for block in self.blocks:
            x = block(x, scale=0.5)
        return self.head(self.norm(x))


POLICY = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})


def gradients(model, x):
    model.zero_grad()
    (model(x) ** 2).mean().backward()
    torch_xla.sync()
    return [p.grad.cpu() for p in model.parameters()]


def check_like_plain(wrap):
    net = Net()
    x = torch.randn(16, 16)
    model = wrap(copy.deepcopy(net))
    for got, expected in zip(gradients(model, x.to("xla")), gradients(net, x), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-6)
    return model


def test_parameters_are_cut():
    model = check_like_plain(lambda net: SpmdFullyShardedDataParallel(net, mesh=MESH))
    block = model.blocks[0]
    assert spec_of(block.up.weight) == "{devices=[8,1]0,1,2,3,4,5,6,7}"
    assert spec_of(block.down.weight) == "{devices=[1,8]0,1,2,3,4,5,6,7}"  # its largest dimension
    assert spec_of(block.up.bias) == "{devices=[8]0,1,2,3,4,5,6,7}"
    assert spec_of(model.head.bias) == "{replicated}"  # has three elements
    assert spec_of(model.head.weight) == "{devices=[1,8]0,1,2,3,4,5,6,7}"


def test_policies_wrap_blocks():
    model = check_like_plain(
        lambda net: SpmdFullyShardedDataParallel(net, mesh=MESH, auto_wrap_policy=POLICY)
    )
    assert [type(block) for block in model.blocks] == [SpmdFullyShardedDataParallel] * 2
    assert type(model.module.blocks[0].module) is Block
    assert model.blocks[1].up is model.blocks[1].module.up


def test_gradient_checkpointing():
    calls = []

    def wrapper(module, **kwargs):
        calls.append(module)
        return SpmdFullyShardedDataParallel(checkpoint_module(module), **kwargs)

    check_like_plain(
        lambda net: SpmdFullyShardedDataParallel(
            net, mesh=MESH, auto_wrap_policy=POLICY, auto_wrapper_callable=wrapper
        )
    )
    assert [type(module) for module in calls] == [Block, Block]


def test_the_global_mesh_is_the_default():
    with pytest.raises(ValueError, match="set_global_mesh"):
        SpmdFullyShardedDataParallel(Net())
    xs.set_global_mesh(MESH)
    try:
        check_like_plain(SpmdFullyShardedDataParallel)
    finally:
        xs.set_global_mesh(None)


def test_an_axis_for_data_only():
    mesh = xs.Mesh(range(8), (2, 4), ("slices", "fsdp"))
    outputs = []

    def wrap(net):
        model = SpmdFullyShardedDataParallel(net, mesh=mesh, extra_data_axis="slices")
        model.register_forward_hook(lambda m, args, output: outputs.append(spec_of(output)))
        return model

    model = check_like_plain(wrap)
    assert spec_of(model.head.weight).startswith("{devices=[1,4,2]")
    assert outputs == ["{devices=[8,1]0,1,2,3,4,5,6,7}"]


def test_what_is_cut_already_stays():
    net = Net().to("xla")
    mesh = xs.Mesh(range(8), (4, 2), ("fsdp", "model"))
    xs.mark_sharding(net.head.weight, mesh, (None, "model"))
    before = spec_of(net.head.weight)
    model = SpmdFullyShardedDataParallel(net, mesh=mesh)
    assert spec_of(model.head.weight) == before
    assert spec_of(model.blocks[0].up.weight).startswith("{devices=[4,1,2]")


class Output:
    def __init__(self, logits):
        self.logits = logits


@pytest.mark.parametrize("pack", [lambda y: (y, None), lambda y: [y], Output])
def test_outputs_that_hold_a_tensor(pack):
    class Packed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x):
            return pack(self.layer(x))

    output = SpmdFullyShardedDataParallel(Packed(), mesh=MESH)(torch.ones(8, 8).to("xla"))
    tensor = getattr(output, "logits", None)
    tensor = output[0] if tensor is None else tensor
    assert spec_of(tensor) == "{devices=[8,1]0,1,2,3,4,5,6,7}"


class Loss(nn.Module):
    def forward(self, x):
        return x.sum()


class Dict(nn.Module):
    def forward(self, x):
        return {"y": x}


def test_outputs_of_a_kind_of_their_own():
    x = torch.ones(8, 2).to("xla")
    assert SpmdFullyShardedDataParallel(Loss(), mesh=MESH)(x).item() == 16.0
    with pytest.raises(TypeError, match="type dict needs a shard_output"):
        SpmdFullyShardedDataParallel(Dict(), mesh=MESH)(x)

    def shard_output(output, mesh):
        xs.mark_sharding(output["y"], mesh, ("fsdp", None))

    output = SpmdFullyShardedDataParallel(Dict(), mesh=MESH, shard_output=shard_output)(x + 1)
    assert spec_of(output["y"]).startswith("{devices=[8,1]")


def test_states_have_the_names_of_the_plain_module():
    net = Net()
    model = SpmdFullyShardedDataParallel(copy.deepcopy(net), mesh=MESH, auto_wrap_policy=POLICY)
    assert list(model.state_dict()) == list(net.state_dict())
    assert set(model.state_dict()._metadata) == set(net.state_dict()._metadata)
    other = Net()
    model.load_state_dict(other.state_dict())
    torch_xla.sync()
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(tensor.cpu(), other.state_dict()[name])
    assert spec_of(model.blocks[0].up.weight) == "{devices=[8,1]0,1,2,3,4,5,6,7}"
    net.load_state_dict(model.state_dict())
    torch.testing.assert_close(net.head.weight.detach(), other.head.weight.detach())
    missing = other.state_dict()
    del missing["head.bias"]
    with pytest.raises(RuntimeError, match=r"head\.bias"):
        model.load_state_dict(missing)


def test_a_deep_copy_is_a_model_of_its_own():
    model = SpmdFullyShardedDataParallel(Net(), mesh=MESH, auto_wrap_policy=POLICY)
    copied = copy.deepcopy(model)
    torch_xla.sync()
    x = torch.ones(8, 16).to("xla")
    before = model(x).detach().cpu()
    with torch.no_grad():
        for parameter in copied.parameters():
            parameter.zero_()
    torch.testing.assert_close(model(x).detach().cpu(), before)
    assert spec_of(copied.blocks[0].up.weight) == "{devices=[8,1]0,1,2,3,4,5,6,7}"


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"no axis 'fsdp'; its axes are \{'x': 8\}"):
        SpmdFullyShardedDataParallel(Net(), mesh=xs.Mesh(range(8), (8,), ("x",)))
    with pytest.raises(TypeError, match="a Mesh, not tuple"):
        SpmdFullyShardedDataParallel(Net(), mesh=(8,))
    with pytest.raises(TypeError, match="a module, not NoneType"):
        SpmdFullyShardedDataParallel(None, mesh=MESH)
    with pytest.raises(ValueError, match="no axis 'slices'"):
        SpmdFullyShardedDataParallel(Net(), mesh=MESH, extra_data_axis="slices")
    model = SpmdFullyShardedDataParallel(Net(), mesh=MESH)
    with pytest.raises(RuntimeError, match="wrapped already"):
        SpmdFullyShardedDataParallel(model, mesh=MESH)


def test_missing_attributes_are_missed():
    model = SpmdFullyShardedDataParallel(nn.Sequential(nn.Linear(8, 8)), mesh=MESH)
    assert model[0] is model.module[0]
    with pytest.raises(AttributeError, match="nothing"):
        _ = model.nothing
