"""Meshes whose devices are in any order, as those of real machines are: the same numbers."""

import pytest
import torch
from torch import nn

import torch_xla
import torch_xla.distributed.spmd as xs
from torch_xla.debug import collectives

ORDERS = [[7, 6, 5, 4, 3, 2, 1, 0], [3, 1, 4, 0, 5, 7, 2, 6], [0, 2, 4, 6, 1, 3, 5, 7]]
SHAPES = {"data": (8,), "data model": (4, 2), "data model expert": (2, 2, 2)}

pytestmark = pytest.mark.parametrize("order", ORDERS, ids=str)


def mesh_of(order, axes="data model"):
    return xs.Mesh(order, SHAPES[axes], tuple(axes.split()))


def parts(whole, mesh, spec):
    """What each device holds."""
    ranges = [mesh.get_op_sharding(spec).ranges(list(whole.shape), d) for d in range(8)]
    return [whole[tuple(slice(*range) for range in each)] for each in ranges]


def check_held(t, expected, mesh, spec):
    for shard, part in zip(
        xs.wrap_as_sharded_tensor(t).local_shards, parts(expected, mesh, spec), strict=True
    ):
        torch.testing.assert_close(shard.data, part, rtol=1e-4, atol=1e-4)


def specs_of(axes):
    names = axes.split()
    return [(a, b) for a in [None, *names] for b in [None, *names] if a != b or a is None]


@pytest.mark.parametrize("axes", SHAPES)
def test_products_and_their_gradients(order, axes):
    mesh = mesh_of(order, axes)
    host = torch.randn(8, 8, requires_grad=True)
    expected = host @ host.t() @ host
    expected.square().sum().backward()
    for spec in specs_of(axes):
        x = xs.mark_sharding(host.detach().to("xla"), mesh, spec).requires_grad_()
        y = x @ x.t() @ x
        y.square().sum().backward()
        xs.mark_sharding(x.grad, mesh, spec)
        torch_xla.sync()
        torch.testing.assert_close(y.detach().cpu(), expected.detach(), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(x.grad.cpu(), host.grad, rtol=1e-4, atol=1e-2)
        check_held(x, host.detach(), mesh, spec)


def test_training_in_one_program(order, metrics):
    mesh = mesh_of(order)
    model = nn.Sequential(nn.Embedding(16, 32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 16))
    cut = nn.Sequential(nn.Embedding(16, 32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 16))
    cut.load_state_dict(model.state_dict())
    cut = cut.to("xla")
    for layer, spec in {0: ("data", None), 1: ("model", "data"), 3: ("data", "model")}.items():
        xs.mark_sharding(cut[layer].weight, mesh, spec)
    indices = torch.randint(16, (8, 4))
    compiled = []
    optimizers = [torch.optim.AdamW(m.parameters(), lr=0.01, eps=1e-4) for m in (model, cut)]
    for _ in range(3):
        losses = []
        x = xs.mark_sharding(indices.to("xla"), mesh, ("data", None))
        for m, optimizer, batch in zip((model, cut), optimizers, (indices, x), strict=True):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(m(batch).flatten(0, 1), batch.flatten())
            loss.backward()
            optimizer.step()
            losses.append(loss)
        torch_xla.sync()
        assert losses[1].item() == pytest.approx(losses[0].item(), rel=1e-4)
        compiled.append(metrics.metric_data("CompileTime")[0])
    assert compiled[-1] == compiled[0]
    for name, parameter in model.named_parameters():
        got = cut.get_parameter(name)
        torch.testing.assert_close(got.detach().cpu(), parameter.detach(), rtol=1e-3, atol=1e-4)
    check_held(cut[1].weight, model[1].weight.detach(), mesh, ("model", "data"))


def test_gradients_of_convolutions(order):
    mesh = mesh_of(order)
    layer = nn.Conv2d(4, 8, 3, padding=1)
    x = torch.randn(4, 4, 8, 8)
    layer(x).square().sum().backward()
    cut = nn.Conv2d(4, 8, 3, padding=1).to("xla")
    cut.load_state_dict(layer.state_dict())
    images = xs.mark_sharding(x.to("xla"), mesh, ("data", None, "model", None))
    cut(images).square().sum().backward()
    torch_xla.sync()
    torch.testing.assert_close(cut.weight.grad.cpu(), layer.weight.grad, rtol=1e-4, atol=1e-3)


def test_results_that_nobody_marked(order):
    """How XLA cut them is told in its own numbers."""
    mesh = mesh_of(order)
    host = torch.arange(64.0).reshape(8, 8)
    x = xs.mark_sharding(host.to("xla"), mesh, ("data", "model"))
    y, z = x * 2, x.t().contiguous() + 1
    torch_xla.sync()
    assert str(torch_xla._XLAC._get_xla_sharding_spec(y)) == str(
        mesh.get_op_sharding(("data", "model"))
    )
    check_held(y, host * 2, mesh, ("data", "model"))
    torch.testing.assert_close(z.cpu(), host.t() + 1)
    torch.testing.assert_close((y @ z).cpu(), host * 2 @ (host.t() + 1))


def test_meshes_of_two_orders_in_one_program(order):
    mesh, other = mesh_of(order), xs.Mesh(range(8), (8,), ("all",))
    a, b = torch.randn(8, 8), torch.randn(8, 8)
    x = xs.mark_sharding(a.to("xla"), mesh, ("data", "model"))
    y = xs.mark_sharding(b.to("xla"), other, (None, "all"))
    product = x @ y
    torch_xla.sync()
    torch.testing.assert_close(product.cpu(), a @ b, rtol=1e-4, atol=1e-4)
    check_held(y, b, other, (None, "all"))


@pytest.mark.parametrize("axis", ["data", "model"])
def test_transfers_of_their_own(order, axis):
    mesh, spec = mesh_of(order), ("data", "model")
    whole = torch.randn(16, 16)
    piece = xs.enable_manual_sharding(whole.to("xla"), spec, mesh)
    blocks = whole.reshape(4, 4, 2, 8).transpose(1, 2)  # by place: [4, 2] of [4, 8]
    dim = mesh.axis_names.index(axis)
    expected = blocks.sum(dim, keepdim=True).expand(blocks.shape).reshape(8, 4, 8)
    shards = xs.XLAShardedTensor(xs.manual_all_reduce(piece, axis, mesh)).local_shards
    for place, device in enumerate(order):
        torch.testing.assert_close(shards[device].data, expected[place], rtol=1e-4, atol=1e-5)
    scattered = xs.manual_reduce_scatter(piece, axis, 0, mesh)
    gathered = xs.manual_all_gather(scattered, axis, 0, mesh)
    for shard, whole_sum in zip(xs.XLAShardedTensor(gathered).local_shards, shards, strict=True):
        torch.testing.assert_close(shard.data, whole_sum.data, rtol=1e-4, atol=1e-5)
    back = xs.disable_manual_sharding(piece * 2, spec, (16, 16), mesh)
    torch.testing.assert_close(back.cpu(), whole * 2)


def test_the_table_names_axes(order):
    mesh = mesh_of(order)
    x = xs.mark_sharding(torch.randn(8, 8).to("xla"), mesh, ("data", "model"))
    x.sum(0)
    total = x.sum(1)
    torch_xla.sync()
    kinds = {(c.kind, c.axes(mesh.axis_names, (4, 2))) for c in collectives.collectives()}
    assert ("all-reduce", ("model",)) in kinds
    torch.testing.assert_close(total.cpu(), x.cpu().sum(1), rtol=1e-4, atol=1e-5)
