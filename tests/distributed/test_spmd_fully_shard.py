"""torch's own fully_shard (FSDP2) over 8 devices."""

import collections
import copy

import pytest
import torch
from layouts import MODELS
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.checkpoint import checkpoint
from training import adamw, compile_count

import torch_xla
import torch_xla.distributed.spmd as xs
from torch_xla.debug import collectives

ROW = xs.Mesh(range(8), (8,), ("fsdp",))
ROWS = "{devices=[8,1]0,1,2,3,4,5,6,7}"


@pytest.fixture(scope="module", autouse=True)
def quick_to_compile():
    torch_xla.set_custom_compile_options({"xla_backend_optimization_level": 0})
    yield
    torch_xla.set_custom_compile_options({})


def row():
    return init_device_mesh("xla", (8,), mesh_dim_names=("fsdp",))


def spec_of(t):
    return torch_xla._XLAC._get_xla_sharding_spec(t)


def on_rows(x, mesh=ROW, axis="fsdp"):
    return xs.mark_sharding(x.to("xla"), mesh, (axis, *[None] * (x.dim() - 1)))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 32)
        self.down = nn.Linear(32, 16)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))

    def twice(self, x):
        return self(self(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(16, 8)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def sharded(net, **options):
    for block in net.blocks:
        fully_shard(block, mesh=row(), **options)
    return fully_shard(net, mesh=row(), **options)


def gradients(model, x):
    model.zero_grad()
    model(x).pow(2).mean().backward()
    return [p.grad for p in model.parameters()]


def check_like_plain(net, model, **tolerance):
    x = torch.randn(16, 16)
    for got, expected in zip(gradients(model, on_rows(x)), gradients(net, x), strict=True):
        torch.testing.assert_close(got.cpu(), expected, **tolerance)


def test_a_gpt_trains_as_on_one_device(metrics):
    torch.manual_seed(0)
    case = MODELS["gpt2"]()
    model = copy.deepcopy(case.model)
    for block in model.transformer.h:
        fully_shard(block, mesh=row())
    fully_shard(model, mesh=row())
    batch = {name: on_rows(tensor) for name, tensor in case.batch.items()}
    optimizers = [adamw(case.model.parameters()), adamw(model.parameters())]
    told = [spec_of(p) for p in model.parameters()]
    assert sum("devices=" in spec for spec in told) > 0.9 * len(told)
    losses = []
    for _ in range(5):
        both = case.loss(case.model, case.batch), case.loss(model, batch)
        for loss, optimizer in zip(both, optimizers, strict=True):
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        torch_xla.sync()
        losses.append([loss.detach() for loss in both])
    assert compile_count() == 1
    for expected, got in losses:
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-5)
    assert [spec_of(p) for p in model.parameters()] == told
    for parameter in model.parameters():
        moment = optimizers[1].state[parameter]["exp_avg"]
        assert spec_of(moment) == spec_of(parameter)
    for got, expected in zip(model.parameters(), case.model.parameters(), strict=True):
        torch.testing.assert_close(got.detach().cpu(), expected.detach(), rtol=1e-3, atol=1e-4)


def test_parameters_are_cut_along_their_first_dimension():
    net = Net()
    model = sharded(copy.deepcopy(net))
    assert isinstance(model, FSDPModule) and isinstance(model, Net)
    assert type(model.blocks[0]).__name__ == "FSDPBlock"
    assert spec_of(model.head.weight) == spec_of(model.blocks[0].up.weight) == ROWS
    assert list(model.state_dict()) == list(net.state_dict())
    check_like_plain(net, model)
    held = xs.wrap_as_sharded_tensor(model.head.weight.detach()).local_shards
    assert [shard.data.shape for shard in held] == [(1, 16)] * 8


def transfers(model):
    torch_xla.sync()
    x = on_rows(torch.randn(16, 16))
    model(x).pow(2).mean().backward()
    torch_xla.sync()
    return collections.Counter(one.kind for one in collectives.collectives())


@pytest.mark.parametrize("again", [False, True])
def test_each_weight_is_gathered_once_or_twice(again):
    """In backward a second time where it was not kept since forward."""
    model = sharded(Net(), reshard_after_forward=again)
    found = transfers(model)
    # Backward needs weights too, but not that of the first layer, whose input is data.
    weights = [p for p in model.parameters() if p.dim() == 2]
    biases = len(list(model.parameters())) - len(weights)
    once = len(weights) + biases
    assert found["all-gather"] == once + (len(weights) - 1 if again else 0)
    model.set_reshard_after_forward(not again)
    assert transfers(model)["all-gather"] == once + (0 if again else len(weights) - 1)


def test_mixed_precision():
    seen = []

    class Seeing(Block):
        def forward(self, x):
            seen.append((x.dtype, self.up.weight.dtype))
            return super().forward(x)

    net = Net()
    net.blocks[0] = Seeing()
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    outermost = MixedPrecisionPolicy(torch.bfloat16, torch.float32, torch.float32)
    model = copy.deepcopy(net)
    for block in model.blocks:
        fully_shard(block, mesh=row(), mp_policy=policy)
    fully_shard(model, mesh=row(), mp_policy=outermost)
    y = model(on_rows(torch.randn(16, 16)))
    assert y.dtype == torch.float32
    assert seen == [(torch.bfloat16, torch.bfloat16)]
    assert model.blocks[0].up.weight.dtype == torch.float32
    assert isinstance(model.blocks[0].up.weight, nn.Parameter)
    check_like_plain(net, model, rtol=0.05, atol=0.01)
    assert all(p.grad.dtype == torch.float32 for p in model.parameters())


def test_gradients_of_gradients():
    torch.manual_seed(0)
    net, x = Net(), torch.randn(8, 16)
    sharded = fully_shard(copy.deepcopy(net).to("xla"), mesh=row())
    for model, t in ((net, x), (sharded, on_rows(x))):
        model(t).pow(3).sum().backward(create_graph=True)
        slopes = [parameter.grad for parameter in model.parameters()]
        model.zero_grad()
        penalty = sum(slope.pow(2).sum() for slope in slopes)
        for parameter, grad in zip(
            model.parameters(), torch.autograd.grad(penalty, list(model.parameters())), strict=True
        ):
            parameter.grad = grad
    for got, expected in zip(sharded.parameters(), net.parameters(), strict=True):
        torch.testing.assert_close(got.grad.cpu(), expected.grad, rtol=1e-3, atol=1e-3)


def test_recurrent_modules_see_it_too():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(16, 8, batch_first=True)

        def forward(self, x):
            return self.rnn(x[:, None])[0]

    net = Recurrent()
    model = copy.deepcopy(net)
    fully_shard(model.rnn, mesh=row(), mp_policy=MixedPrecisionPolicy(torch.bfloat16))
    assert model(on_rows(torch.randn(16, 16))).dtype == torch.bfloat16
    check_like_plain(net, model, rtol=0.05, atol=0.01)


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_code_sees_the_same(dtype, reentrant):
    class Checkpointed(Block):
        def forward(self, x):
            return checkpoint(super().forward, x, use_reentrant=reentrant)

    net = Net()
    net.blocks[1] = Checkpointed()
    net.blocks[1].load_state_dict(net.blocks[0].state_dict())
    model = sharded(copy.deepcopy(net), mp_policy=MixedPrecisionPolicy(dtype))
    tolerance = {} if dtype is None else {"rtol": 0.05, "atol": 0.01}
    check_like_plain(net, model, **tolerance)
    assert all(isinstance(p, nn.Parameter) for p in model.parameters())


def test_copies_along_a_second_axis():
    mesh = init_device_mesh("xla", (2, 4), mesh_dim_names=("copies", "fsdp"))
    net = Net()
    model = fully_shard(copy.deepcopy(net), mesh=mesh)
    assert spec_of(model.head.weight) == (
        "{devices=[4,1,2]0,4,1,5,2,6,3,7 last_tile_dim_replicate}"
    )
    check_like_plain(net, model)


@pytest.mark.parametrize(
    "mesh, parts",
    [
        (None, 8),
        (xs.Mesh(range(8), (4, 2), ("fsdp", "model")), 4),
        (xs.Mesh(range(8), (4, 2), ("copies", "rows")), 2),
    ],
)
def test_without_a_mesh(mesh, parts):
    xs.set_global_mesh(mesh)
    try:
        weight = fully_shard(nn.Linear(16, 16)).weight
    finally:
        xs.set_global_mesh(None)
    assert xs.wrap_as_sharded_tensor(weight).local_shards[0].data.shape == (16 // parts, 16)


def test_beside_tensor_parallelism():
    mesh = init_device_mesh("xla", (2, 4), mesh_dim_names=("dp", "tp"))
    net = Net()
    model = copy.deepcopy(net).to("xla")
    for block in model.blocks:
        parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(block, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    ours = xs.convert_to_xla_mesh(mesh)
    up, down = model.blocks[0].up, model.blocks[0].down
    assert spec_of(up.weight) == str(ours.get_op_sharding((("tp", "dp"), None)))
    assert spec_of(down.weight) == str(ours.get_op_sharding(("dp", "tp")))
    x = torch.randn(16, 16)
    there = on_rows(x, ours, "dp")
    for got, expected in zip(gradients(model, there), gradients(net, x), strict=True):
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-6)


def test_what_tensor_parallelism_cut_moves_before_the_first_step(metrics):
    mesh = init_device_mesh("xla", (2, 4), mesh_dim_names=("dp", "tp"))
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    model = Net()
    for block in model.blocks:
        fully_shard(parallelize_module(block, mesh["tp"], plan), mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    metrics.clear_all()
    for _ in range(3):
        x = on_rows(torch.randn(16, 16), xs.convert_to_xla_mesh(mesh), "dp")
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        torch_xla.sync()
    assert metrics.metric_data("CompileTime")[0] == 1


def test_placements_of_parameters():
    model = fully_shard(
        Net(), mesh=row(), shard_placement_fn=lambda p: Shard(p.dim() - 1) if p.dim() > 1 else None
    )
    assert spec_of(model.head.weight) == "{devices=[1,8]0,1,2,3,4,5,6,7}"
    small = fully_shard(nn.Linear(16, 4), mesh=row())
    assert spec_of(small.weight) == "{devices=[1,8]0,1,2,3,4,5,6,7}"
    assert spec_of(small.bias) == "{replicated}"
    uneven = fully_shard(nn.Linear(16, 13), mesh=row())
    assert spec_of(uneven.weight) == ROWS
    ignored = nn.Linear(16, 16)
    fully_shard(ignored, mesh=row(), ignored_params={ignored.weight})
    assert ignored.weight.device.type == "cpu" and ignored.bias.device.type == "xla"


def test_parameters_that_are_made_later():
    with torch.device("meta"):
        model = Net()
    sharded(model)
    model.to_empty(device="xla")
    assert spec_of(model.blocks[1].up.weight) == ROWS
    net = Net()
    model.load_state_dict(net.state_dict())
    check_like_plain(net, model)
    model.load_state_dict({k: v.to("xla") for k, v in net.state_dict().items()}, assign=True)
    check_like_plain(net, model)
    assert spec_of(model.blocks[1].up.weight) == ROWS


def test_groups_and_shared_parameters():
    class Tied(Net):
        def __init__(self):
            super().__init__()
            self.blocks[1].up = self.blocks[0].up

    net = Tied()
    model = copy.deepcopy(net)
    assert fully_shard([model.blocks[0], model.blocks[1]], mesh=row()) == [*model.blocks]
    fully_shard(model, mesh=row())
    check_like_plain(net, model)
    assert model.blocks[0].up.weight is model.blocks[1].up.weight


def test_methods_that_users_call():
    net = Net()
    model = sharded(copy.deepcopy(net))
    model.unshard()
    assert model.unshard(async_op=True).wait() is None
    model.reshard()
    model.set_requires_gradient_sync(False)
    model.set_is_last_backward(False)
    model.set_modules_to_forward_prefetch([model.blocks[0]])
    model.set_modules_to_backward_prefetch([model.blocks[0]])
    check_like_plain(net, model)
    with pytest.raises(NotImplementedError, match="scale the loss"):
        model.set_gradient_divide_factor(2.0)
    with pytest.raises(NotImplementedError, match="XLA's own"):
        model.set_all_reduce_hook(print)
    register_fsdp_forward_method(model.blocks[0], "twice")
    x = torch.randn(8, 16)
    got = model.blocks[0].twice(on_rows(x)).detach().cpu()
    torch.testing.assert_close(got, net.blocks[0].twice(x).detach())


def test_a_forward_that_fails_leaves_nothing_behind():
    net = Net()
    model = sharded(copy.deepcopy(net))
    with pytest.raises(RuntimeError):
        model(torch.ones(16, 3).to("xla"))
    assert all(isinstance(p, nn.Parameter) for p in model.parameters())
    check_like_plain(net, model)


def test_copies_of_a_model():
    net = Net()
    model = sharded(copy.deepcopy(net))
    copied = copy.deepcopy(model)
    assert isinstance(copied.blocks[0], FSDPModule) and copied.blocks[0] is not model.blocks[0]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    check_like_plain(net, copied)
    assert spec_of(copied.blocks[0].up.weight) == ROWS


def test_compiled_blocks():
    net = Net()
    model = sharded(copy.deepcopy(net))
    for block in model.blocks:
        block.compile(backend="openxla")
    check_like_plain(net, model, rtol=1e-4, atol=1e-6)


def test_what_cannot_be():
    with pytest.raises(NotImplementedError, match="devices' memory"):
        fully_shard(nn.Linear(8, 8), mesh=row(), offload_policy=CPUOffloadPolicy())
    with pytest.raises(ValueError, match="ModuleList has no forward"):
        fully_shard(nn.ModuleList([nn.Linear(8, 8)]), mesh=row())
    with pytest.raises(ValueError, match="a mesh of one axis"):
        fully_shard(nn.Linear(8, 8), mesh=xs.Mesh(range(8), (2, 2, 2)))
    with pytest.raises(ValueError, match="4 devices, while programs run on all 8"):
        fully_shard(nn.Linear(8, 8), mesh=init_device_mesh("xla", (4,)))
    with pytest.raises(ValueError, match="into 8 parts and has only 4"):
        fully_shard(nn.Linear(8, 4), mesh=row(), shard_placement_fn=lambda p: Shard(0))
    elsewhere = nn.Linear(8, 8).to("xla")
    xs.mark_sharding(elsewhere.weight, xs.Mesh(range(7, -1, -1), (8,), ("x",)), ("x", None))
    with pytest.raises(ValueError, match="weight is cut over another mesh"):
        fully_shard(elsewhere, mesh=row())
