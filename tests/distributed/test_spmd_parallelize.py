"""The parallelize styles of torch.distributed.tensor.parallel over xla."""

import copy

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

import torch_xla
import torch_xla.distributed.spmd as xs
from torch_xla.debug import collectives

GRID = xs.Mesh(range(8), (2, 4), ("data", "model"))
COLUMNS = "{devices=[8,1]0,1,2,3,4,5,6,7}"
ROWS = "{devices=[1,8]0,1,2,3,4,5,6,7}"


def spec_of(t):
    return torch_xla._XLAC._get_xla_sharding_spec(t)


def row():
    return init_device_mesh("xla", (8,), mesh_dim_names=("model",))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(32, 16)
        self.norm = nn.LayerNorm(16)
        self.up = nn.Linear(16, 32)
        self.down = nn.Linear(32, 16)
        self.head = nn.Linear(16, 24)

    def forward(self, tokens):
        x = self.embedding(tokens)
        x = x + self.down(torch.relu(self.up(self.norm(x))))
        return self.head(x)


PLAN = {
    "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
    "norm": SequenceParallel(),
    "up": ColwiseParallel(input_layouts=Shard(1)),
    "down": RowwiseParallel(output_layouts=Shard(1)),
    "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
}


def check_trains_like(plain, model, tokens, steps=3):
    optimizers = [torch.optim.AdamW(m.parameters(), lr=0.05) for m in (plain, model)]
    for _ in range(steps):
        outputs = [plain(tokens), model(tokens.to("xla"))]
        for output, optimizer in zip(outputs, optimizers, strict=True):
            output.pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        torch_xla.sync()
        assert type(outputs[1]) is torch.Tensor
        torch.testing.assert_close(
            outputs[1].detach().cpu(), outputs[0].detach(), rtol=1e-4, atol=1e-5
        )
    for got, expected in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(got.detach().cpu(), expected.detach(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("mesh", ["of torch", "of ours"])
def test_a_block_trains_alike(mesh):
    torch.manual_seed(0)
    plain = Block()
    along = row() if mesh == "of torch" else xs.Mesh(range(8), (8,), ("model",))
    model = parallelize_module(copy.deepcopy(plain).to("xla"), along, PLAN)
    assert spec_of(model.up.weight) == COLUMNS
    assert spec_of(model.up.bias) == "{devices=[8]0,1,2,3,4,5,6,7}"
    assert spec_of(model.down.weight) == ROWS
    assert spec_of(model.down.bias) == spec_of(model.norm.weight) == "{replicated}"
    assert spec_of(model.embedding.weight) == COLUMNS
    assert all(isinstance(p, nn.Parameter) for p in model.parameters())
    check_trains_like(plain, model, torch.randint(32, (4, 8)))


def test_along_one_axis_of_a_grid():
    """Tensor parallelism along one axis, the batch along the other."""
    torch.manual_seed(0)
    plain = Block()
    model = parallelize_module(copy.deepcopy(plain).to("xla"), GRID["model"], PLAN)
    assert spec_of(model.up.weight) == str(GRID.get_op_sharding(("model", None)))
    tokens = torch.randint(32, (4, 8))
    there = tokens.to("xla")
    xs.mark_sharding(there, GRID, ("data", None))
    torch.testing.assert_close(
        model(there).detach().cpu(), plain(tokens).detach(), rtol=1e-4, atol=1e-5
    )
    check_trains_like(plain, model, tokens, steps=2)


def test_columns_then_rows_take_one_all_reduce():
    plain = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    model = parallelize_module(copy.deepcopy(plain).to("xla"), row(), plan)
    x = torch.randn(4, 16)
    there = x.to("xla")
    torch_xla.sync()
    with torch.no_grad():
        y = model(there)
    torch_xla.sync()
    kinds = [found.kind for found in collectives.collectives()]
    torch.testing.assert_close(y.cpu(), plain(x).detach(), rtol=1e-4, atol=1e-5)
    assert kinds == ["all-reduce"]


def test_compiled_models():
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    model = parallelize_module(copy.deepcopy(plain).to("xla"), row(), plan)
    compiled = torch.compile(model, backend="openxla")
    x = torch.randn(4, 16)
    for _ in range(3):
        y = compiled(x.to("xla"))
        y.pow(2).sum().backward()
        plain(x).pow(2).sum().backward()
    torch.testing.assert_close(y.detach().cpu(), plain(x).detach(), rtol=1e-4, atol=1e-5)
    for got, expected in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(got.grad.cpu(), expected.grad, rtol=1e-4, atol=1e-4)


def test_columns_of_an_embedding():
    plain = nn.Embedding(32, 16)
    style = ColwiseParallel(output_layouts=Replicate())
    model = parallelize_module(copy.deepcopy(plain).to("xla"), row(), style)
    assert spec_of(model.weight) == ROWS
    tokens = torch.randint(32, (3, 5))
    torch.testing.assert_close(model(tokens.to("xla")).detach().cpu(), plain(tokens).detach())


class Scaled(nn.Module):
    def forward(self, x, scale=None):
        return x * 2 if scale is None else x * scale


@pytest.mark.parametrize("local", [True, False])
def test_preparing_inputs_and_outputs(local):
    x = torch.randn(8, 16)
    for style in (
        PrepareModuleInput(
            input_layouts=Shard(0), desired_input_layouts=Replicate(), use_local_output=local
        ),
        PrepareModuleOutput(
            output_layouts=Shard(0), desired_output_layouts=Shard(1), use_local_output=local
        ),
        PrepareModuleInputOutput(
            input_layouts=(Shard(0),),
            desired_input_layouts=(Shard(1),),
            use_local_input=local,
            output_layouts=Shard(1),
            desired_output_layouts=Replicate(),
            use_local_output=local,
        ),
    ):
        model = parallelize_module(Scaled(), row(), style)
        y = model(x.to("xla"))
        torch.testing.assert_close(y.cpu(), x * 2)
        wanted = getattr(style, "desired_output_layouts", None)
        if wanted == (Shard(1),):
            assert spec_of(y) == ROWS


def test_preparing_keywords():
    style = PrepareModuleInput(
        input_layouts=(Shard(0),),
        desired_input_layouts=(Replicate(),),
        input_kwarg_layouts={"scale": Replicate()},
        desired_input_kwarg_layouts={"scale": Shard(0)},
    )
    model = parallelize_module(Scaled(), row(), style)
    x, scale = torch.randn(8, 16), torch.randn(8, 16)
    y = model(x.to("xla"), scale=scale.to("xla"))
    torch.testing.assert_close(y.cpu(), x * scale)


def test_from_local_says_how_the_whole_lies():
    x = torch.randn(8, 16)
    t = DTensor.from_local(x.to("xla"), row(), [Shard(0)])
    assert t.shape == (8, 16) and spec_of(t) == COLUMNS
    assert list(t.placements) == [Shard(0)] and t.device_mesh.size() == 8
    other = t.redistribute(placements=[Shard(1)])
    assert spec_of(other) == ROWS and spec_of(t) == COLUMNS
    torch.testing.assert_close(other.to_local().cpu(), x)
    assert type(other.to_local()) is type(other + 1) is torch.Tensor
    assert spec_of(DTensor.from_local(x.to("xla"), row())) == "{replicated}"


def test_styles_that_do_not_fit():
    with pytest.raises(NotImplementedError, match=r"nn\.Linear"):
        parallelize_module(nn.Conv2d(8, 8, 1), row(), ColwiseParallel())
    with pytest.raises(ValueError, match="no such dimension"):
        model = parallelize_module(
            nn.Linear(16, 16), row(), ColwiseParallel(output_layouts=Shard(5))
        )
        model(torch.ones(2, 16).to("xla"))
    with pytest.raises(ValueError, match=r"cut .Shard. or whole"):
        DTensor.from_local(torch.ones(8).to("xla"), row(), [Partial()])
    with pytest.raises(ValueError, match="into 8 parts and has only 4"):
        parallelize_module(nn.Linear(16, 4), row(), ColwiseParallel())
    with pytest.raises(ValueError, match="1 placements for a mesh of 2 axes"):
        parallelize_module(nn.Linear(16, 16), GRID, ColwiseParallel())
    with pytest.raises(ValueError, match="no axis 'rows'"):
        GRID["rows"]


def test_axes_of_a_mesh():
    axes = GRID["model"]
    assert axes.size() == 4 and axes.ndim == 1 and "model" in repr(axes)
    both = GRID["model", "data"]
    t = distribute_tensor(torch.ones(8, 8), both, [Shard(0), Shard(0)])
    assert spec_of(t) == str(GRID.get_op_sharding((("model", "data"), None)))
    assert xs.convert_to_xla_mesh(axes) is GRID
    with pytest.raises(TypeError, match="iterable"):
        list(GRID)


def test_axes_of_a_mesh_of_torch():
    mesh = init_device_mesh("xla", (2, 4), mesh_dim_names=("data", "model"))
    axes = mesh["model"]
    assert axes.size() == 4 and axes.ndim == 1 and axes.mesh_dim_names == ("model",)
    assert axes.whole == GRID
    t = distribute_tensor(torch.ones(8, 8), axes, [Shard(0)])
    assert spec_of(t) == str(GRID.get_op_sharding(("model", None)))
    assert torch.equal(t.to_local().cpu(), torch.ones(8, 8))
    with pytest.raises(ValueError, match="no axis 'rows'"):
        mesh["rows"]


def test_losses_over_a_cut_vocabulary():
    """Inside `loss_parallel` or not: XLA cuts the loss as it cuts all else."""
    plain = nn.Linear(16, 32)
    style = ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)
    model = parallelize_module(copy.deepcopy(plain).to("xla"), row(), style)
    x, targets = torch.randn(4, 16), torch.randint(32, (4,))
    with loss_parallel():
        loss = nn.functional.cross_entropy(model(x.to("xla")), targets.to("xla"))
        loss.backward()
    torch_xla.sync()
    found = collectives.collectives()
    assert {one.kind for one in found} == {"all-reduce"}
    assert max(one.bytes for one in found) < 4 * 32 * 4  # numbers of rows, no scores
    expected = nn.functional.cross_entropy(plain(x), targets)
    expected.backward()
    torch.testing.assert_close(loss.detach().cpu(), expected.detach())
    torch.testing.assert_close(model.weight.grad.cpu(), plain.weight.grad)


def test_context_parallel_is_refused():
    from torch.distributed.tensor.experimental import context_parallel

    q = torch.ones(1, 1, 16, 8).to("xla")
    with (
        pytest.raises(NotImplementedError, match="dimension of the sequence"),
        context_parallel(row(), buffers=[q], buffer_seq_dims=[2]),
    ):
        pass
    assert q.shape == (1, 1, 16, 8)
