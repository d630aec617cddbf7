"""Tensors cut over 8 devices: what lies where, and that it stays there."""

import copy
import io

import pytest
import torch
from torch import nn

import torch_xla
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr

MESH = xs.Mesh(range(8), (2, 4), ("data", "model"))
BACKWARDS = xs.Mesh(range(7, -1, -1), (8,), ("all",))


def spec_of(t):
    return torch_xla._XLAC._get_xla_sharding_spec(t)


def on_xla(*shape):
    return torch.arange(float(torch.Size(shape).numel())).reshape(shape).to("xla")


def check(t, expected, text):
    """The values are right, each device has the right part of them, and XLA was told."""
    assert spec_of(t) == text
    torch.testing.assert_close(t.cpu(), expected)
    shards = xs.wrap_as_sharded_tensor(t).local_shards
    assert [shard.shard_device for shard in shards] == torch_xla.real_devices()
    for shard in shards:
        part = expected if shard.indices is Ellipsis else expected[tuple(shard.indices)]
        torch.testing.assert_close(shard.data, part)
        torch.testing.assert_close(shard.unpadded_data, part)


SPECS = [
    ((8, 8), ("data", "model"), "{devices=[2,4]0,1,2,3,4,5,6,7}", "TILED"),
    (
        (8, 8),
        ("model", None),
        "{devices=[4,1,2]0,4,1,5,2,6,3,7 last_tile_dim_replicate}",
        "PARTIAL",
    ),
    ((8, 8), (None, ("data", "model")), "{devices=[1,8]0,1,2,3,4,5,6,7}", "TILED"),
    ((8, 8), (("model", "data"), None), "{devices=[8,1]0,4,1,5,2,6,3,7}", "TILED"),
    ((8, 8), (None, None), "{replicated}", "REPLICATED"),
    ((5, 3), ("model", "data"), "{devices=[4,2]0,4,1,5,2,6,3,7}", "TILED"),
    ((13,), (("data", "model"),), "{devices=[8]0,1,2,3,4,5,6,7}", "TILED"),
    ((), (), "{replicated}", "REPLICATED"),
    ((2, 3, 4), ("data", None, 1), "{devices=[2,1,4]0,1,2,3,4,5,6,7}", "TILED"),
]


@pytest.mark.parametrize("shape, spec, text, kind", SPECS)
@pytest.mark.parametrize("where", ["host", "device", "pending"])
def test_marks(shape, spec, text, kind, where):
    t = on_xla(*shape)
    expected = t.cpu()
    if where == "device":
        t = t + 1
        torch_xla.sync()
        expected = expected + 1
    elif where == "pending":
        t = t * 2
        expected = expected * 2
    marked = xs.mark_sharding(t, MESH, spec)
    assert isinstance(marked, xs.XLAShardedTensor)
    assert marked.sharding_spec == spec_of(t) == text
    assert marked.sharding_type == xs.ShardingType[kind]
    torch_xla.sync()
    check(t, expected, text)
    torch.testing.assert_close((t * 3).cpu(), expected * 3)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.int64, torch.bfloat16])
def test_dtypes(dtype):
    expected = torch.arange(16).to(dtype)
    t = expected.to("xla")
    xs.mark_sharding(t, MESH, (("data", "model"),))
    check(t, expected, "{devices=[8]0,1,2,3,4,5,6,7}")


def test_devices_in_any_order():
    t = on_xla(8)
    marked = xs.mark_sharding(t, BACKWARDS, ("all",))
    check(t, t.cpu(), "{devices=[8]7,6,5,4,3,2,1,0}")
    assert [shard.data.item() for shard in marked.local_shards] == [7.0 - i for i in range(8)]


def test_replicas_are_numbered():
    t = xs.mark_sharding(on_xla(8), MESH, ("model",))
    assert [shard.replica_id for shard in t.local_shards] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert t.local_shards[5].indices == [slice(2, 4, 1)]
    whole = xs.mark_sharding(on_xla(8), MESH, (None,))
    assert [shard.replica_id for shard in whole.local_shards] == list(range(8))


def test_two_meshes_in_one_program():
    a, b = on_xla(8, 8), on_xla(8, 8)
    xs.mark_sharding(a, MESH, ("data", "model"))
    xs.mark_sharding(b, BACKWARDS, (None, "all"))
    torch.testing.assert_close((a @ b).cpu(), a.cpu() @ b.cpu())


# --- Bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shape, mesh, spec, error, message",
    [
        ((8, 8), MESH, ("rows", None), ValueError, "no axis 'rows'"),
        ((8, 8), MESH, ("data",), ValueError, r"an entry for each dimension.*\(8, 8\)"),
        ((8,), MESH, ("data", None), ValueError, "an entry for each dimension"),
        ((), MESH, ("data",), ValueError, r"an entry for each dimension.*shape \(\)"),
        ((8, 8), MESH, ("data", "data"), ValueError, "cuts more than once"),
        ((3, 8), MESH, ("model", None), ValueError, "into 4 parts and has only 3"),
        ((0, 8), MESH, ("data", None), ValueError, "has only 0"),
        ((8,), xs.Mesh(range(16), (16,), ("x",)), ("x",), ValueError, "16 devices"),
        ((8,), xs.Mesh(range(4), (4,), ("x",)), ("x",), ValueError, "4 devices"),
        ((8,), (2, 4), ("x",), TypeError, "a Mesh, not tuple"),
    ],
)
@pytest.mark.parametrize(
    "call", [xs.mark_sharding, xs.annotate_custom_sharding, xs.mark_sharding_with_gradients]
)
def test_what_cannot_be(call, shape, mesh, spec, error, message):
    t = on_xla(*shape)
    expected = t.cpu()
    with pytest.raises(error, match=message):
        call(t, mesh, spec)
    torch.testing.assert_close(t.cpu(), expected)  # nothing is lost
    assert spec_of(t + 1) in ("", "{replicated}")


@pytest.mark.parametrize(
    "call",
    [
        lambda t: xs.mark_sharding(t, MESH, ("data",)),
        lambda t: xs.mark_sharding_with_gradients(t, MESH, ("data",)),
        xs.clear_sharding,
        xs.wrap_as_sharded_tensor,
        lambda t: xs.xla_distribute_tensor(t, MESH),
    ],
)
@pytest.mark.parametrize("what", [None, 3, [1.0]])
def test_what_is_no_tensor(call, what):
    with pytest.raises(TypeError, match=f"a tensor, not {type(what).__name__}"):
        call(what)


def test_tensors_elsewhere():
    with pytest.raises(ValueError, match="is on cpu"):
        xs.mark_sharding(torch.ones(8), MESH, ("data",))
    with pytest.raises(ValueError, match="is on cpu"):
        xs.clear_sharding(torch.ones(8))


def test_sparse_tensors():
    with pytest.raises(ValueError, match=r"layout torch\.sparse_coo cannot be cut"):
        xs.mark_sharding(torch.eye(8).to("xla").to_sparse(), MESH, ("data", None))


def test_a_tensor_is_told_once():
    t = on_xla(8, 8)
    xs.mark_sharding(t, MESH, ("data", None))
    xs.mark_sharding(t, MESH, ("data", None))  # the same again
    with pytest.raises(RuntimeError, match=r"told \{devices=\[2,1,4\].*clear_sharding"):
        xs.mark_sharding(t, MESH, (None, "data"))
    with pytest.raises(RuntimeError, match="clear_sharding"):
        xs.mark_sharding(t, MESH, (None, None))
    check(t, t.cpu(), "{devices=[2,1,4]0,1,2,3,4,5,6,7 last_tile_dim_replicate}")


def test_whole_may_become_cut():
    t = on_xla(8, 8)
    xs.mark_sharding(t, MESH, (None, None))
    xs.mark_sharding(t, MESH, ("data", None))
    check(t, t.cpu(), "{devices=[2,1,4]0,1,2,3,4,5,6,7 last_tile_dim_replicate}")


# --- Changing one's mind --------------------------------------------------------------------------


def test_clear_sharding():
    t = on_xla(8, 8)
    marked = xs.mark_sharding(t, MESH, ("data", "model"))
    torch_xla.sync()
    cleared = xs.clear_sharding(marked)
    assert type(cleared) is torch.Tensor
    torch_xla.sync()
    check(t, t.cpu(), "{replicated}")
    xs.mark_sharding(t, MESH, ("model", "data"))
    check(t, t.cpu(), "{devices=[4,2]0,4,1,5,2,6,3,7}")


def test_clearing_what_was_never_marked():
    t = on_xla(8)
    assert xs.clear_sharding(t) is t
    check(t + 0, t.cpu(), spec_of(t + 0))


def test_annotate_custom_sharding_overrides():
    t = on_xla(8, 8)
    expected = t.cpu()
    xs.mark_sharding(t, MESH, ("data", "model"))
    torch_xla.sync()
    for spec in [("model", "data"), (None, "data"), (None, None), ("data", "model")]:
        xs.annotate_custom_sharding(t, MESH, spec)
        torch_xla.sync()
        check(t, expected, str(MESH.get_op_sharding(spec)))


# --- Kept -----------------------------------------------------------------------------------------

CUT = "{devices=[4,1,2]0,4,1,5,2,6,3,7 last_tile_dim_replicate}"


@pytest.fixture
def cut():
    t = on_xla(8, 8)
    xs.mark_sharding(t, MESH, ("model", None))
    torch_xla.sync()
    return t


def in_place_updates():
    def slices(t):
        t[2:4] = -1.0

    def copy_rows(t):
        t.index_copy_(0, torch.tensor([5], device=t.device), torch.full((1, 8), 9.0).to(t.device))

    def through_view(t):
        t.t()[3].mul_(2)

    return [
        lambda t: t.add_(1),
        lambda t: t.zero_(),
        lambda t: t.copy_(torch.ones(8, 8)),
        lambda t: t.copy_(torch.ones(8, 8).to(t.device) * 3),
        slices,
        copy_rows,
        through_view,
    ]


@pytest.mark.parametrize("update", in_place_updates())
@pytest.mark.parametrize("syncs", [True, False])
def test_updates_keep_it(cut, update, syncs):
    expected = cut.cpu()
    for _ in range(3):
        update(cut)
        update(expected)
        if syncs:
            torch_xla.sync()
    torch_xla.sync()
    check(cut, expected, CUT)


def test_views_share_it(cut):
    assert spec_of(cut.t()) == "{devices=[1,4,2]0,4,1,5,2,6,3,7 last_tile_dim_replicate}"
    assert spec_of(cut.detach()) == CUT
    marked = on_xla(8, 8)
    xs.mark_sharding(marked.t(), MESH, (None, "model"))
    check(marked, marked.cpu(), CUT)


def test_a_view_of_another_shape_can_be_marked():
    base = on_xla(16, 4)
    t = (base * 2).view(4, 4, 4)
    xs.mark_sharding(t, MESH, ("data", None, "model"))
    torch_xla.sync()
    torch.testing.assert_close(t.cpu(), (base.cpu() * 2).view(4, 4, 4))


def test_a_part_of_a_tensor_can_be_marked():
    base = on_xla(8, 8) + 1
    xs.mark_sharding(base[2:6], MESH, ("model", "data"))
    torch_xla.sync()
    torch.testing.assert_close(base.cpu(), torch.arange(64.0).reshape(8, 8) + 1)


def test_the_part_of_a_cut_tensor_has_shards_too(cut):
    shards = xs.XLAShardedTensor(cut[1:3]).local_shards
    for shard in shards:
        index = () if shard.indices is Ellipsis else tuple(shard.indices)
        torch.testing.assert_close(shard.data, cut.cpu()[1:3][index])


def test_deepcopy_and_clone_keep_it(cut):
    for copied in (copy.deepcopy(cut), cut.clone(), torch.empty_like(cut).copy_(cut)):
        torch_xla.sync()
        check(copied, cut.cpu(), CUT)


def test_what_optimizers_make_lies_like_parameters():
    weight = nn.Parameter(on_xla(8, 8))
    xs.mark_sharding(weight, MESH, ("model", None))
    for optimizer in (
        torch.optim.AdamW([weight], lr=0.1),
        torch.optim.SGD([weight], lr=0.1, momentum=0.9),
    ):
        for _ in range(2):
            (weight**2).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            torch_xla.sync()
        state = [v for v in optimizer.state[weight].values() if torch.is_tensor(v) and v.dim() == 2]
        assert state and all(spec_of(v) == CUT for v in state)
        assert spec_of(weight) == CUT


@pytest.mark.parametrize("where", ["cpu", "xla", "xla, whole", "xla, cut otherwise"])
def test_what_optimizers_load_lies_like_parameters(where):
    weight = nn.Parameter(on_xla(8, 8))
    xs.mark_sharding(weight, MESH, ("model", None))
    saved = {"step": torch.tensor(3.0), "exp_avg": torch.randn(8, 8), "exp_avg_sq": torch.rand(8)}
    expected = saved["exp_avg"].clone()
    if where != "cpu":
        saved["exp_avg"] = saved["exp_avg"].to("xla")
    if where == "xla, whole":
        saved["exp_avg"] = saved["exp_avg"] * 1
        torch_xla.sync()
    text = CUT
    if where == "xla, cut otherwise":
        xs.mark_sharding(saved["exp_avg"], MESH, (None, "data"))
        text = spec_of(saved["exp_avg"])
    optimizer = torch.optim.AdamW([weight])
    optimizer.load_state_dict(optimizer.state_dict() | {"state": {0: saved}})
    state = optimizer.state[weight]
    assert state["step"].device.type == "cpu"
    assert spec_of(state["exp_avg_sq"]) == ""  # of another shape
    torch_xla.sync()
    check(state["exp_avg"], expected, text)


def test_saved_and_loaded(cut):
    file = io.BytesIO()
    torch.save({"t": xs.wrap_as_sharded_tensor(cut)}, file)
    loaded = torch.load(io.BytesIO(file.getvalue()), map_location="cpu")["t"]
    assert type(loaded) is torch.Tensor
    torch.testing.assert_close(loaded, cut.cpu())
    target = nn.Linear(8, 8, bias=False).to("xla")
    xs.mark_sharding(target.weight, MESH, ("model", None))
    target.load_state_dict({"weight": loaded})
    torch_xla.sync()
    check(target.weight.detach(), loaded, CUT)


def test_parameters_stay_parameters():
    layer = nn.Linear(8, 8).to("xla")
    weight = layer.weight
    marked = xs.mark_sharding(weight, MESH, ("model", None))
    assert layer.weight is weight and weight.is_leaf
    layer(torch.ones(2, 8).to("xla")).sum().backward()
    torch.testing.assert_close(weight.grad.cpu(), torch.full((8, 8), 2.0))
    # The view of it shares its history.
    (marked * 2).sum().backward()
    torch.testing.assert_close(weight.grad.cpu(), torch.full((8, 8), 4.0))


# --- Parts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape, spec, text, kind", SPECS)
def test_loading_parts(shape, spec, text, kind):
    t = on_xla(*shape)
    expected = t.cpu()
    marked = xs.mark_sharding(t, MESH, spec)
    shards = marked.local_shards
    for shard in shards:
        shard.data = shard.data * -2
    marked.load_local_shards_(shards[::-1])
    check(t, expected * -2, text)


@pytest.mark.parametrize("make", [lambda t: t, lambda t: t.zero_(), lambda t: t.add_(1)])
@pytest.mark.parametrize("look", [lambda t: t, lambda t: t.t(), lambda t: t.detach().t().t()])
def test_parts_of_what_is_pending(make, look):
    t = on_xla(8, 6)
    xs.mark_sharding(t, MESH, (("data", "model"), None))
    expected = look(make(t.cpu()))
    torch_xla.sync()
    t = look(make(t))
    for number, shard in enumerate(xs.XLAShardedTensor(t).local_shards):
        part = expected[:, number] if t.shape == (6, 8) else expected[number]
        torch.testing.assert_close(shard.data.flatten(), part)
        torch.testing.assert_close(shard.data, expected[tuple(shard.indices)])


def test_parts_that_do_not_fit(cut):
    marked = xs.wrap_as_sharded_tensor(cut)
    expected = cut.cpu()
    shards = marked.local_shards
    with pytest.raises(ValueError, match="one shard for each of"):
        marked.load_local_shards_(shards[:3])
    with pytest.raises(ValueError, match="one shard for each of"):
        marked.load_local_shards_([*shards[:7], shards[0]])
    shards[0].data = torch.ones(2, 8, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"dtype|type"):
        marked.load_local_shards_(shards)
    shards[0].data = torch.ones(1, 8)
    with pytest.raises(ValueError, match=r"shape \(1, 8\)"):
        marked.load_local_shards_(shards)
    torch.testing.assert_close(cut.cpu(), expected)


def test_memory_is_that_of_the_part():
    before = torch_xla.core.xla_model.get_memory_info("xla:0")["bytes_used"]
    t = torch.ones(1024, 1024).to("xla")
    xs.mark_sharding(t, MESH, (("data", "model"), None))
    torch_xla.sync()
    after = torch_xla.core.xla_model.get_memory_info("xla:0")["bytes_used"]
    assert after - before == t.nbytes // 8


def test_reading_what_is_on_the_host_sends_it_nowhere():
    def used():
        return torch_xla.core.xla_model.get_memory_info("xla:0")["bytes_used"]

    before = used()
    expected = torch.randn(64, 64)
    t = expected.to("xla")
    read = t.cpu()
    assert torch.equal(read, expected)
    read.zero_()  # which is a copy
    assert torch.equal(t.cpu(), expected)
    assert used() == before
    xs.mark_sharding(t, MESH, ("model", None))
    check(t, expected, "{devices=[4,1,2]0,4,1,5,2,6,3,7 last_tile_dim_replicate}")
    assert used() == before + t.nbytes // 4


def test_programs_that_devices_of_one_memory_cannot_run():
    """Devices made of the CPU have the host's memory among them."""
    memory = torch_xla.core.xla_model.get_memory_info("xla:0")["bytes_limit"]
    kept = on_xla(8) + 1
    large = torch.arange(memory // 6, device="xla", dtype=torch.uint8)  # for one there is room
    with pytest.raises(torch.OutOfMemoryError, match="tried to allocate"):
        torch_xla.sync()
    del large
    torch.testing.assert_close(kept.cpu(), torch.arange(8.0) + 1)


# --- Wrapping -------------------------------------------------------------------------------------


def test_wrapping(cut):
    wrapped = xs.wrap_if_sharded(cut)
    assert isinstance(wrapped, xs.XLAShardedTensor)
    assert xs.wrap_as_sharded_tensor(wrapped) is wrapped
    assert type(xs.unwrap_sharded_tensor(wrapped)) is torch.Tensor
    assert xs.unwrap_sharded_tensor(cut) is cut
    whole = xs.mark_sharding(on_xla(8), MESH, (None,))
    plain = whole.global_tensor
    assert xs.wrap_if_sharded(plain) is plain
    assert xs.wrap_if_sharded(3) == 3
    with pytest.raises(ValueError, match="not on cpu"):
        xs.XLAShardedTensor(torch.ones(2))


def test_sharded_tensors_are_tensors(cut):
    wrapped = xs.wrap_as_sharded_tensor(cut)
    assert torch.equal(wrapped.cpu(), cut.cpu())
    assert type(wrapped + 1) is torch.Tensor
    assert type(wrapped.detach()) is type(wrapped.clone()) is xs.XLAShardedTensor
    assert type(copy.deepcopy(wrapped)) is xs.XLAShardedTensor
    assert repr(wrapped).startswith("XLAShardedTensor(")
    wrapped.add_(1)
    torch.testing.assert_close(cut.cpu(), torch.arange(64.0).reshape(8, 8) + 1)


def test_unknown_shardings():
    t = on_xla(4) + 1
    assert xs.XLAShardedTensor(t).sharding_type == xs.ShardingType.UNKNOWN
    with pytest.raises(ValueError, match="no sharding yet"):
        xs.visualize_tensor_sharding(t)
    torch_xla.sync()
    assert xs.XLAShardedTensor(t).sharding_type == xs.ShardingType.REPLICATED


def test_pictures_of_tensors(cut, capsys):
    picture = xs.visualize_tensor_sharding(cut, use_color=False)
    assert picture in capsys.readouterr().out
    assert [line.strip("│ ") for line in picture.splitlines()[1::2]] == [
        "CPU 0,4",
        "CPU 1,5",
        "CPU 2,6",
        "CPU 3,7",
    ]


# --- In the midst of programs ---------------------------------------------------------------------


def test_marks_with_gradients():
    a = on_xla(8, 8).requires_grad_()
    cut = xs.mark_sharding_with_gradients(a * 2, MESH, ("data", "model"))
    assert spec_of(cut) == "{devices=[2,4]0,1,2,3,4,5,6,7}"
    kept = []
    cut.register_hook(kept.append)
    (cut**2).sum().backward()
    torch_xla.sync()
    torch.testing.assert_close(a.grad.cpu(), 8 * torch.arange(64.0).reshape(8, 8))
    torch.testing.assert_close(cut.detach().cpu(), 2 * a.detach().cpu())


def test_marks_with_gradients_constrain_both_ways():
    a = on_xla(8, 8).requires_grad_()
    cut = xs.mark_sharding_with_gradients(a, MESH, ("data", "model"))
    (grad,) = torch.autograd.grad((cut * 3).sum(), a)
    assert spec_of(grad) == "{devices=[2,4]0,1,2,3,4,5,6,7}"


def cube(t):
    return xs.mark_sharding_with_gradients(t, MESH, ("data", "model")) ** 3


@pytest.mark.parametrize(
    "transformed",
    [
        lambda f: torch.func.grad(lambda t: f(t).sum()),
        lambda f: torch.func.grad(lambda t: torch.func.grad(lambda u: f(u).sum())(t).sum()),
        lambda f: lambda t: torch.func.jvp(f, (t,), (t,))[1],
        lambda f: lambda t: torch.func.jvp(torch.func.grad(lambda u: f(u).sum()), (t,), (t,))[1],
        lambda f: lambda t: torch.func.vmap(f)(torch.stack([t, t + 1])),
        lambda f: lambda t: torch.func.vmap(f, 2, 1)(torch.stack([t, t + 1], 2)),
        lambda f: lambda t: torch.func.vmap(torch.func.grad(lambda u: f(u).sum()))(t[None]),
        lambda f: torch.func.jacrev(f),
        lambda f: torch.func.jacfwd(f),
    ],
)
def test_marks_within_transforms(transformed):
    t = on_xla(8, 8)
    got = transformed(cube)(t)
    torch.testing.assert_close(got.cpu(), transformed(lambda t: t**3)(t.cpu()))


def test_gradients_of_gradients_pass_marks():
    t = on_xla(8, 8).requires_grad_()
    (first,) = torch.autograd.grad(cube(t).sum(), t, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), t)
    torch.testing.assert_close(second.cpu(), 6 * t.detach().cpu())
    a, b = xs.shard_as(t, xs.mark_sharding(on_xla(8, 8), MESH, ("data", None)))
    (first,) = torch.autograd.grad((a**3 * b).sum(), t, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), t)
    torch.testing.assert_close(second.cpu(), 6 * t.detach().cpu() * b.cpu())


def test_only_copies_are_cut_within_transforms():
    with pytest.raises(ValueError, match="mark_sharding_with_gradients is what cuts"):
        torch.func.grad(lambda t: xs.mark_sharding(t * 1, MESH, ("data", None)).sum())(on_xla(8, 8))


@pytest.mark.parametrize("spec", [(None, "model"), ("model", None), (None, ("data", "model"))])
def test_marked_results_of_torchs_own_kernels(spec):
    """XLA may not lay out in its own way what the kernel writes row by row."""
    host = torch.randn(16, 8, requires_grad=True)
    x = host.detach().to("xla").requires_grad_()
    expected = host.topk(8).values
    values = xs.mark_sharding_with_gradients(x.topk(8).values, MESH, spec)
    for result in (expected, values):
        (result * result * torch.arange(8.0, device=result.device)).sum().backward()
    torch_xla.sync()
    torch.testing.assert_close(values.detach().cpu(), expected.detach())
    torch.testing.assert_close(x.grad.cpu(), host.grad)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(
    "spec",
    [("data", None, None, None), (None, None, "model", None), ("data", None, "model", None)],
)
def test_gradients_of_convolutions_count_copies_once(groups, spec):
    layer = nn.Conv2d(4, 8, 3, padding=1, groups=groups)
    x = torch.randn(4, 4, 8, 8)
    layer(x).square().sum().backward()
    cut = nn.Conv2d(4, 8, 3, padding=1, groups=groups).to("xla")
    cut.load_state_dict(layer.state_dict())
    cut(xs.mark_sharding(x.to("xla"), MESH, spec)).square().sum().backward()
    torch_xla.sync()
    torch.testing.assert_close(cut.weight.grad.cpu(), layer.weight.grad, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(cut.bias.grad.cpu(), layer.bias.grad, rtol=1e-4, atol=1e-3)


def test_why_a_step_was_compiled_again(metrics):
    metrics.clear_all()

    def step(spec, inner):
        x = xs.mark_sharding(on_xla(8, 8), MESH, spec)
        torch_xla.sync()
        y = xs.mark_sharding_with_gradients(x * 3, MESH, inner)  # noqa: F841
        torch_xla.sync()
        return metrics.metrics_report()

    step(("data", None), ("data", None))
    assert "LastDifference: its inputs lie otherwise" in step((None, "data"), ("data", None))
    assert "cuts as {devices=[1,4,2]" in step(("data", None), (None, "model"))


def test_shard_as(cut):
    other = on_xla(8, 8) + 1
    a, b = xs.shard_as({"w": cut, "n": 1}, {"w": other, "n": 2})
    assert spec_of(b["w"]) == CUT and (a["n"], b["n"]) == (1, 2)
    torch.testing.assert_close(b["w"].cpu(), other.cpu())
    c, d = xs.shard_as(other + 1, cut)
    assert spec_of(c) == spec_of(d) == CUT
    with pytest.raises(ValueError, match="mark one first"):
        xs.shard_as(other + 1, other + 2)
    with pytest.raises(ValueError, match="structures differ"):
        xs.shard_as([cut], (cut,))
    with pytest.raises(ValueError, match="dimensions"):
        xs.shard_as(cut, on_xla(8))


# --- Linear layers --------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("where", ["cpu", "xla"])
def test_einsum_linear(bias, where):
    model = nn.Sequential(nn.Linear(6, 8, bias=bias), nn.Tanh(), nn.Linear(8, 4))
    reference = copy.deepcopy(model)
    assert xs.apply_xla_patch_to_nn_linear(model) is model
    assert type(model[0]) is type(model[2]) is xs.EinsumLinear
    model.to(where)
    x = torch.randn(2, 3, 6)
    inputs = [x.clone().to(where).requires_grad_(), x.clone().requires_grad_()]
    outputs = [m(i) for m, i in zip((model, reference), inputs, strict=True)]
    for output in outputs:
        (output**2).sum().backward()
    torch.testing.assert_close(outputs[0].cpu(), outputs[1])
    torch.testing.assert_close(inputs[0].grad.cpu(), inputs[1].grad)
    for p, q in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(p.grad.cpu(), q.grad)


def test_einsum_linear_under_autocast():
    layer = xs.EinsumLinear(8, 8).to("xla")
    x = torch.randn(2, 8, device="xla", requires_grad=True)
    with torch.autocast("xla", torch.bfloat16):
        y = layer(x)
    assert y.dtype == torch.bfloat16
    y.float().sum().backward()
    assert x.grad.dtype == layer.weight.grad.dtype == torch.float32


def test_one_device_is_all_that_torch_sees():
    assert torch_xla.devices() == [torch.device("xla:0")]
    assert xr.global_runtime_device_count() == 8


def test_shards_of_what_is_pending():
    marked = on_xla(5, 3)
    xs.mark_sharding(marked, MESH, ("model", "data"))
    state, expected = torch.zeros_like(marked), torch.arange(15.0).reshape(5, 3)
    state += on_xla(5, 3)
    for shard in xs.wrap_as_sharded_tensor(state).local_shards:
        part = expected if shard.indices is Ellipsis else expected[tuple(shard.indices)]
        torch.testing.assert_close(shard.data, part)
    torch_xla.sync()
    check(state, expected, "{devices=[4,2]0,4,1,5,2,6,3,7}")


def test_casts_keep_the_layout():
    t = on_xla(5, 3)
    xs.mark_sharding(t, MESH, ("model", "data"))
    narrow = t.to(torch.bfloat16)
    torch_xla.sync()
    assert spec_of(narrow) == spec_of(t)


def test_loading_shards_is_a_write():
    t = on_xla(8).requires_grad_()
    xs.mark_sharding(t, BACKWARDS, ("all",))
    loss = (t * t).sum()
    xs.wrap_as_sharded_tensor(t).load_local_shards_(xs.wrap_as_sharded_tensor(t).local_shards)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_shardings_are_compared_with_anything():
    t = on_xla(8)
    xs.mark_sharding(t, BACKWARDS, ("all",))
    sharding = torch_xla._XLAC._xla_get_sharding(t)
    assert sharding == torch_xla._XLAC._xla_get_sharding(t.clone())
    assert sharding != None  # noqa: E711
    assert sharding not in (None, "cut")


def test_marks_in_compiled_functions():
    def model(x, w):
        y = xs.mark_sharding_with_gradients(x @ w, MESH, ("data", "model"))
        return torch.tanh(y)

    compiled = torch.compile(model, backend="openxla", fullgraph=True)
    x, w = torch.randn(8, 8), torch.randn(8, 8)
    tensors = [t.clone().to("xla").requires_grad_() for t in (x, w)]
    references = [t.clone().requires_grad_() for t in (x, w)]
    for _ in range(3):
        y = compiled(*tensors)
    y.sum().backward()
    expected = torch.tanh(references[0] @ references[1])
    expected.sum().backward()
    torch.testing.assert_close(y.cpu(), expected, rtol=1e-5, atol=1e-5)
    for got, want in zip(tensors, references, strict=True):
        torch.testing.assert_close(got.grad.cpu(), want.grad, rtol=1e-4, atol=1e-5)


def test_marks_in_place_break_the_graph_and_are_kept():
    @torch.compile(backend="openxla")
    def model(x, w):
        y = x @ w
        xs.mark_sharding(y, MESH, ("data", "model"))
        return torch.tanh(y)

    x, w = torch.randn(8, 8), torch.randn(8, 8)
    for _ in range(3):
        y = model(x.to("xla"), w.to("xla"))
        torch.testing.assert_close(y.cpu(), torch.tanh(x @ w), rtol=1e-5, atol=1e-5)


def test_compiled_functions_take_tensors_with_a_view_of_their_parts(cut):
    wrapped = xs.wrap_as_sharded_tensor(cut)
    compiled = torch.compile(lambda t: t.t() * 2, backend="openxla")
    torch.testing.assert_close(compiled(wrapped).cpu(), cut.cpu().t() * 2)


def test_the_operator_of_graphs(cut):
    mark = torch.ops.xla.dynamo_mark_sharding
    words = (list(range(8)), [2, 4], "('data', 'model')", "('data', 'model')")
    marked = mark(cut, *words)
    assert spec_of(marked) == "{devices=[2,4]0,1,2,3,4,5,6,7}"
    torch.testing.assert_close(marked.cpu(), cut.cpu())
    assert torch.equal(mark(torch.ones(2), *words), torch.ones(2))
    same = torch.ops.xla.aot_mark_sharding(cut, str(MESH), "(None, 'data')")
    assert spec_of(same) == str(MESH.get_op_sharding((None, "data")))
    fake = xs.xla_sharding.aot_mark_sharding_fake(torch.empty(2, 3, device="meta"), "", "")
    assert fake.shape == (2, 3)
    with pytest.raises(ValueError, match="no text of a partition spec: 'data,'"):
        mark(cut, *words[:3], "data,")
    with pytest.raises(ValueError, match="no axis 'rows'"):
        mark(cut, *words[:3], "('rows', None)")


def test_compiled_functions_run_over_the_mesh():
    model = nn.Linear(8, 8)
    x = torch.randn(8, 8)
    expected = model(x)
    model, x = model.to("xla"), x.to("xla")
    xs.mark_sharding(model.weight, MESH, ("model", "data"))
    xs.mark_sharding(x, MESH, ("data", None))
    compiled = torch.compile(model, backend="openxla")
    for _ in range(3):
        y = compiled(x)
        torch.testing.assert_close(y.cpu(), expected, rtol=1e-5, atol=1e-5)
    y.sum().backward()
    torch_xla.sync()
    torch.testing.assert_close(model.bias.grad.cpu(), torch.full((8,), 8.0))


def test_names_of_old():
    """By which programs for earlier torch_xla ask the compiled half."""
    ask = torch_xla._XLAC
    cut, plain = on_xla(8, 8), on_xla(8, 8)
    xs.mark_sharding(cut, MESH, ("model", None))
    ask._xla_mark_sharding(plain, ask._get_xla_op_sharding(cut))
    assert spec_of(plain) == CUT
    assert ask._get_xla_sharding_type(cut) == xs.ShardingType.PARTIAL
    assert ask._get_xla_sharding_type(on_xla(2)) is None
    (shards,) = ask._get_local_shards([cut])
    assert len(shards) == 8
    for (data, device), shard in zip(shards, xs.XLAShardedTensor(cut).local_shards, strict=True):
        assert torch.equal(data, shard.data) and device == shard.shard_device
    assert ask._xla_get_spmd_config_is_locked() and not ask._xla_get_auto_sharding()
