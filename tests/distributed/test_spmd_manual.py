"""Parts of a program that are written for one device, over 8."""

import pytest
import torch
from torch import nn

import torch_xla
import torch_xla.distributed.spmd as xs
from torch_xla.debug import collectives
from torch_xla.experimental.distributed_checkpoint._helpers import on_host

MESH = xs.Mesh(range(8), (2, 4), ("data", "model"))
BACKWARDS = xs.Mesh(range(7, -1, -1), (8,), ("all",))


def spec_of(t):
    return torch_xla._XLAC._get_xla_sharding_spec(t)


def counted(*shape):
    return torch.arange(float(torch.Size(shape).numel())).reshape(shape)


def pieces(t, spec, mesh=MESH):
    """What each device has of a tensor on CPU."""
    sharding = mesh.get_op_sharding(spec)
    return [
        t[tuple(slice(*r) for r in sharding.ranges(list(t.shape), device))] for device in range(8)
    ]


def held(t):
    return [shard.data for shard in xs.XLAShardedTensor(t).local_shards]


SPECS = [
    (("data", "model"), MESH),
    (("model", None), MESH),
    ((None, "data"), MESH),
    ((("model", "data"), None), MESH),
    ((None, None), MESH),
    (("all", None), BACKWARDS),
]


@pytest.mark.parametrize("spec, mesh", SPECS)
@pytest.mark.parametrize("where", ["host", "device", "pending"])
def test_pieces_have_the_shape_of_one_device(spec, mesh, where):
    whole = counted(8, 16)
    t = whole.to("xla")
    if where != "host":
        t, whole = t * 2, whole * 2
    if where == "device":
        torch_xla.sync()
    piece = xs.enable_manual_sharding(t, spec, mesh)
    expected = pieces(whole, spec, mesh)
    assert piece.shape == expected[0].shape
    assert spec_of(piece) == "{manual}"
    assert piece.sharding_type == xs.ShardingType.MANUAL
    for got, want in zip(held(piece), expected, strict=True):
        torch.testing.assert_close(got, want)
    # On the host it is the first device's.
    torch.testing.assert_close(piece.cpu(), expected[0])
    back = xs.disable_manual_sharding(piece + 1, spec, (8, 16), mesh)
    torch.testing.assert_close(back.cpu(), whole + 1)
    torch.testing.assert_close(t.cpu(), whole)  # left alone


@pytest.mark.parametrize("syncs", [False, True])
def test_each_device_computes_with_its_own(syncs):
    whole = counted(8, 16)
    piece = xs.enable_manual_sharding(whole.to("xla"), ("data", "model"), MESH)
    local = piece - piece.mean()
    if syncs:
        torch_xla.sync()
    back = xs.disable_manual_sharding(local * 2, ("data", "model"), (8, 16), MESH)
    blocks = whole.reshape(2, 4, 4, 4)
    expected = (2 * (blocks - blocks.mean((1, 3), keepdim=True))).reshape(8, 16)
    torch.testing.assert_close(back.cpu(), expected)


def test_a_part_uses_what_an_earlier_one_computed():
    whole = counted(8, 16)
    piece = xs.enable_manual_sharding(whole.to("xla"), ("data", "model"), MESH)
    doubled = piece * 2
    first = xs.disable_manual_sharding(doubled, ("data", "model"), (8, 16), MESH)
    total = first.sum(0, keepdim=True) + torch.zeros(8, 16, device="xla")
    again = xs.enable_manual_sharding(total, ("data", "model"), MESH)
    second = xs.disable_manual_sharding(again + doubled, ("data", "model"), (8, 16), MESH)
    torch.testing.assert_close(second.cpu(), 2 * whole.sum(0, keepdim=True) + 2 * whole)


def test_pieces_are_kept_and_updated_over_steps():
    whole = counted(8, 4)
    state = xs.enable_manual_sharding(torch.zeros(8, 4).to("xla"), ("data", "model"), MESH)
    state = state.global_tensor
    torch_xla.sync()
    for _ in range(3):
        state += xs.enable_manual_sharding(whole.to("xla"), ("data", "model"), MESH)
        torch_xla.sync()
    assert spec_of(state) == "{manual}"
    back = xs.disable_manual_sharding(state, ("data", "model"), (8, 4), MESH)
    torch.testing.assert_close(back.cpu(), 3 * whole)
    state.copy_(torch.ones(4, 1))  # what is whole again
    state += 1
    torch_xla.sync()
    torch.testing.assert_close(state.cpu(), torch.full((4, 1), 2.0))


def test_numbers_and_what_is_made_of_them_need_no_entry():
    whole = counted(8, 4)
    piece = xs.enable_manual_sharding(whole.to("xla"), ("data", "model"), MESH)
    rows = torch.arange(4, device="xla").unsqueeze(1)
    piece = torch.where(rows < 2, piece * 3, torch.zeros(4, 1, device="xla"))
    back = xs.disable_manual_sharding(piece, ("data", "model"), (8, 4), MESH)
    mask = (torch.arange(8) % 4 < 2).unsqueeze(1)
    torch.testing.assert_close(back.cpu(), torch.where(mask, whole * 3, 0))


def test_annotating_in_place():
    t = counted(4, 2).to("xla")
    marked = xs.annotate_manual_sharding(t)
    assert marked.sharding_type == xs.ShardingType.MANUAL and marked.shape == (4, 2)
    assert xs._mark_manual_sharding is xs.annotate_manual_sharding
    gathered = xs.manual_all_gather(t, "model", 0, MESH)
    whole = xs.disable_manual_sharding(gathered, (None, None), (16, 2), MESH)
    torch.testing.assert_close(whole.cpu(), counted(4, 2).repeat(4, 1))


# --- Transfers of its own -------------------------------------------------------------------------


@pytest.mark.parametrize("axes", ["model", "data", ("data", "model"), ("model", "data"), 1])
@pytest.mark.parametrize("kind", ["sum", "mul", "min", "max"])
def test_all_reduce(axes, kind):
    whole = counted(8, 16) / 16 + 1
    piece = xs.enable_manual_sharding(whole.to("xla"), ("data", "model"), MESH)
    got = held(xs.manual_all_reduce(piece, axes, MESH, kind))
    blocks = torch.stack(pieces(whole, ("data", "model"))).reshape(2, 4, 4, 4)
    dims = {"model": [1], "data": [0], 1: [1]}.get(axes, [0, 1])
    for dim in dims:
        reduce = {"sum": torch.sum, "mul": torch.prod, "min": torch.amin, "max": torch.amax}[kind]
        blocks = reduce(blocks, dim, keepdim=True)
    expected = blocks.expand(2, 4, 4, 4).reshape(8, 4, 4)
    torch.testing.assert_close(torch.stack(got), expected, rtol=1e-5, atol=0)


def test_reduce_scatter_and_gather():
    whole = counted(8, 16)
    piece = xs.enable_manual_sharding(whole.to("xla"), ("data", "model"), MESH)
    scattered = xs.manual_reduce_scatter(piece, "model", 0, MESH)
    assert scattered.shape == (1, 4)
    gathered = xs.manual_all_gather(scattered, "model", 0, MESH)
    summed = torch.stack(pieces(whole, ("data", "model"))).reshape(2, 4, 4, 4).sum(1)
    for device, (one, all_rows) in enumerate(zip(held(scattered), held(gathered), strict=True)):
        torch.testing.assert_close(one, summed[device // 4, device % 4].unsqueeze(0))
        torch.testing.assert_close(all_rows, summed[device // 4])


def test_the_forms_of_the_compiled_half():
    t = torch.ones(8, 8).to("xla")
    piece = xs.enable_manual_sharding(t, ("data", None), MESH)
    halves = [[i, i + 4] for i in range(4)]
    summed = torch_xla._XLAC._xla_spmd_all_reduce("sum", piece, 0.5, halves)
    back = torch_xla._XLAC._spmd_shard_to_full_shape(
        summed, MESH.get_op_sharding((None, None)), [4, 8], t.dtype
    )
    torch.testing.assert_close(back.cpu(), torch.ones(4, 8))
    share = torch_xla._XLAC._xla_spmd_reduce_scatter("sum", piece, 1.0, -1, 2, halves)
    assert share.shape == (4, 4) and share.cpu().unique().tolist() == [2.0]
    xs.mark_sharding(t, MESH, ("model", None))
    assert torch_xla._XLAC._spmd_full_to_shard_shape(t).shape == (2, 8)


def test_programs_hold_just_these_transfers():
    x = xs.mark_sharding(torch.randn(8, 16).to("xla"), MESH, ("data", "model"))
    torch_xla.sync()
    piece = xs.enable_manual_sharding(x, ("data", "model"), MESH)
    out = xs.disable_manual_sharding(
        xs.manual_all_reduce(piece * 2, "model", MESH), ("data", None), (8, 4), MESH
    )
    torch_xla.sync()
    (found,) = collectives.collectives()
    assert (found.kind, found.axes(("data", "model"), (2, 4))) == ("all-reduce", ("model",))
    assert spec_of(out) == "{devices=[2,1,4]0,1,2,3,4,5,6,7 last_tile_dim_replicate}"


# --- Gradients ------------------------------------------------------------------------------------


class Mlp(nn.Module):
    """Megatron's two layers, cut by hand: one all-reduce forward, one backward."""

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8, bias=False)

    def forward(self, x):
        return self.down(torch.tanh(self.up(x)))

    def by_hand(self, x):
        piece = xs.enable_manual_sharding(x, ("data", None), MESH)
        up = xs.enable_manual_sharding(self.up.weight, ("model", None), MESH)
        bias = xs.enable_manual_sharding(self.up.bias, ("model",), MESH)
        down = xs.enable_manual_sharding(self.down.weight, (None, "model"), MESH)
        y = torch.tanh(piece @ up.t() + bias) @ down.t()
        y = xs.manual_all_reduce(y, "model", MESH)
        return xs.disable_manual_sharding(y, ("data", None), x.shape, MESH)


def equal_mlps():
    """One on CPU, its equal on xla, and an input."""
    torch.manual_seed(0)
    model = Mlp()
    on_xla = Mlp()
    on_xla.load_state_dict(model.state_dict())
    return model, on_xla.to("xla"), torch.randn(4, 8)


def test_gradients_are_those_of_the_whole():
    model, on_xla, x = equal_mlps()
    there = x.to("xla").requires_grad_()
    here = x.clone().requires_grad_()
    (model(here) ** 2).mean().backward()
    for _ in range(2):
        on_xla.zero_grad()
        there.grad = None
        y = on_xla.by_hand(there)
        (y**2).mean().backward()
        torch_xla.sync()
    torch.testing.assert_close(y.detach().cpu(), model(x).detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(there.grad.cpu(), here.grad, rtol=1e-4, atol=1e-6)
    for got, expected in zip(on_xla.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(got.grad.cpu(), expected.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "spec", [("data", "model"), ("model", None), (None, "data"), (None, None)], ids=str
)
def test_gradients_through_there_and_back(spec):
    whole = counted(4, 8)
    t = whole.to("xla").requires_grad_()
    piece = xs.enable_manual_sharding(t, spec, MESH)
    back = xs.disable_manual_sharding(piece * piece, spec, (4, 8), MESH)
    back.sum().backward()
    torch.testing.assert_close(t.grad.cpu(), 2 * whole)


def test_gradients_of_scatter_and_gather():
    whole = counted(8, 16)
    t = whole.to("xla").requires_grad_()
    piece = xs.enable_manual_sharding(t, ("data", "model"), MESH)
    share = xs.manual_reduce_scatter(piece * piece, "model", 1, MESH)
    rows = xs.manual_all_gather(share, "model", 1, MESH)
    xs.disable_manual_sharding(rows, ("data", None), (8, 4), MESH).sum().backward()
    torch.testing.assert_close(t.grad.cpu(), 2 * whole)


def test_gradients_of_gradients():
    model, on_xla, x = equal_mlps()
    for forward, t in ((model, x), (on_xla.by_hand, x.to("xla"))):
        t.requires_grad_()
        (slope,) = torch.autograd.grad((forward(t) ** 2).mean(), t, create_graph=True)
        (slope**2).sum().backward()
    for got, expected in zip(on_xla.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(got.grad.cpu(), expected.grad, rtol=1e-4, atol=1e-6)


def test_gradients_of_gradients_of_scatter_and_gather():
    whole = counted(8, 16)
    t = whole.to("xla").requires_grad_()
    piece = xs.enable_manual_sharding(t, ("data", "model"), MESH)
    share = xs.manual_reduce_scatter(piece**3, "model", 1, MESH)
    rows = xs.manual_all_gather(share, "model", 1, MESH)
    total = xs.disable_manual_sharding(rows, ("data", None), (8, 4), MESH).sum()
    (slope,) = torch.autograd.grad(total, t, create_graph=True)
    slope.sum().backward()
    torch.testing.assert_close(t.grad.cpu(), 6 * whole)


def test_only_sums_have_gradients():
    t = torch.ones(8, 8).to("xla").requires_grad_()
    piece = xs.enable_manual_sharding(t, ("data", None), MESH)
    y = xs.manual_all_reduce(piece, "data", MESH, "max")
    with pytest.raises(RuntimeError, match="'max' has no gradient"):
        y.sum().backward()


def test_in_compiled_and_replayed_steps():
    torch.manual_seed(0)
    whole = torch.randn(4, 8)
    weight = whole.to("xla").requires_grad_()
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def loss_of(w):
        piece = xs.enable_manual_sharding(w, ("data", "model"), MESH)
        squares = xs.manual_all_reduce((piece * piece).sum(), ("data", "model"), MESH)
        return xs.disable_manual_sharding(squares, (), (), MESH)

    @torch_xla.compile(replay=True)
    def step():
        optimizer.zero_grad()
        loss = loss_of(weight)
        loss.backward()
        optimizer.step()
        return loss.detach()

    compiled = torch.compile(loss_of, backend="openxla")
    for _ in range(5):
        expected = (whole**2).sum()
        torch.testing.assert_close(compiled(weight).detach().cpu(), expected)
        torch.testing.assert_close(step().cpu(), expected)
        whole -= 0.2 * whole
    assert step.traced_because == ""
    torch.testing.assert_close(weight.detach().cpu(), whole)


# --- Bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shape, spec, mesh, error, message",
    [
        ((8, 6), (None, "model"), MESH, ValueError, "6 elements, which is no multiple of 4"),
        ((8, 2), (None, "model"), MESH, ValueError, "into 4 parts and has only 2"),
        ((8, 8), ("rows", None), MESH, ValueError, "no axis 'rows'"),
        ((8, 8), ("data",), MESH, ValueError, "1 entries for a tensor of shape"),
        ((), ("data",), MESH, ValueError, r"1 entries for a tensor of shape \(\)"),
        ((8, 8), ("data", None), None, ValueError, "set_global_mesh"),
        ((8, 8), ("data", None), (2, 4), TypeError, "a Mesh, not tuple"),
        ((8, 8), ("x", None), xs.Mesh(range(4), (4,), ("x",)), ValueError, "4 devices"),
    ],
)
def test_what_cannot_be_entered(shape, spec, mesh, error, message):
    t = torch.ones(shape).to("xla")
    with pytest.raises(error, match=message):
        xs.enable_manual_sharding(t, spec, mesh)
    assert t.sum().item() == t.numel()


def test_other_shapes_than_that_of_the_pieces():
    piece = xs.enable_manual_sharding(torch.ones(8, 8).to("xla"), ("data", None), MESH)
    with pytest.raises(ValueError, match=r"make a tensor of shape \[8, 8\], not \[8, 16\]"):
        xs.disable_manual_sharding(piece, ("data", None), (8, 16), MESH)
    with pytest.raises(ValueError, match="is on cpu"):
        xs.enable_manual_sharding(torch.ones(8), ("data",), MESH)


def test_collectives_that_cannot_be():
    piece = xs.enable_manual_sharding(torch.ones(8, 8).to("xla"), ("data", None), MESH)
    with pytest.raises(ValueError, match="no axis 'rows'"):
        xs.manual_all_reduce(piece, "rows", MESH)
    with pytest.raises(ValueError, match="got 'mean'"):
        xs.manual_all_reduce(piece, "data", MESH, "mean")
    with pytest.raises(ValueError, match="not of bools"):
        xs.manual_all_reduce(piece > 0, "data", MESH)
    with pytest.raises(ValueError, match="no multiple of 8"):
        xs.manual_reduce_scatter(piece, ("data", "model"), 0, MESH)
    with pytest.raises(IndexError, match="out of range"):
        xs.manual_all_gather(piece, "data", 2, MESH)
    with pytest.raises(ValueError, match="each once"):
        torch_xla._XLAC._xla_spmd_all_reduce("sum", piece, 1.0, [[0, 1]])
    with pytest.raises(ValueError, match="groups of 1 and of 7"):
        torch_xla._XLAC._xla_spmd_all_reduce("sum", piece, 1.0, [[0], list(range(1, 8))])


def test_whole_tensors_in_a_part():
    t = torch.ones(8, 8).to("xla")
    piece = xs.enable_manual_sharding(t, ("data", None), MESH)
    mixed = piece + torch.ones(8).to("xla")
    with pytest.raises(RuntimeError, match=r"whole tensor in a part.*enable_manual_sharding"):
        mixed.cpu()
    nested = xs.enable_manual_sharding(piece * 2, ("data", None), MESH)
    with pytest.raises(RuntimeError, match=r"piece already"):
        nested.cpu()
    outside = torch_xla._XLAC._xla_spmd_all_reduce("sum", t, 1.0, [])
    with pytest.raises(RuntimeError, match="whole tensor in a part"):
        outside.cpu()
    torch.testing.assert_close(piece.cpu(), torch.ones(4, 8))  # nothing else is lost


def test_sizes_that_depend_on_data():
    piece = xs.enable_manual_sharding(counted(16).to("xla"), (("data", "model"),), MESH)
    with pytest.raises(RuntimeError, match="one device's piece"):
        piece[piece > 3]
    with pytest.raises(RuntimeError, match="one device's piece"):
        torch.unique(piece)
    whole = counted(16).to("xla")
    assert whole[whole > 3].shape == (12,)


def test_pieces_are_not_marked():
    piece = xs.enable_manual_sharding(torch.ones(8, 8).to("xla"), ("data", None), MESH)
    with pytest.raises(RuntimeError, match="disable_manual_sharding"):
        xs.mark_sharding(piece, MESH, ("model", None))
    later = xs.mark_sharding_with_gradients(piece * 2, MESH, ("model", None))
    with pytest.raises(RuntimeError, match="disable_manual_sharding"):
        later.cpu()
    torch_xla.sync()
    with pytest.raises(RuntimeError, match="one device's piece"):
        piece.load_local_shards_(piece.local_shards)
    for look in (lambda: piece.placements, lambda: piece.device_mesh):
        with pytest.raises(ValueError, match="no mesh and placements can say"):
            look()
    with pytest.raises(ValueError, match="checkpoint holds whole tensors"):
        on_host({"piece": piece})
    with pytest.raises(ValueError, match="sharding"):
        xs.visualize_tensor_sharding(piece)


def test_meshes_that_say_different_things():
    a = xs.enable_manual_sharding(torch.ones(8, 8).to("xla"), ("data", "model"), MESH)
    b = xs.enable_manual_sharding(torch.ones(8, 8).to("xla"), ("all", None), BACKWARDS)
    both = a.sum() + b.sum()
    with pytest.raises(RuntimeError, match="use one mesh for all of them"):
        both.cpu()


# --- Checks of values ---


def test_indices_that_the_host_knows_are_still_looked_at():
    """Those that only the device knows are not, once a process has a part (see the guide)."""
    x = xs.mark_sharding(torch.randn(8, 16).to("xla"), MESH, ("data", "model"))
    piece = xs.enable_manual_sharding(x, ("data", "model"), MESH)
    with pytest.raises(IndexError):
        x[torch.tensor([9]).to("xla")]
    with pytest.raises(IndexError):
        x.index_select(0, torch.tensor([8]).to("xla"))
    beyond = torch.tensor([3]).to("xla") * 4
    torch_xla.sync()
    assert x.index_select(0, beyond).cpu().shape == (1, 16)
    whole = xs.disable_manual_sharding(piece, ("data", "model"), (8, 16), MESH)
    torch.testing.assert_close(whole.cpu(), x.cpu())
