"""Copies between devices and dtypes, reading values, printing, copying and saving."""

import copy
import io
import pickle

import numpy as np
import pytest
import torch

import torch_xla

ALL_DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128,
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool, torch.uint16,
    torch.uint32, torch.uint64, torch.float8_e5m2, torch.float8_e4m3fn,
]  # fmt: skip


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
def test_round_trips(device, dtype):
    want = torch.tensor([[0, 1, 2], [3, 4, 1]]).to(dtype)
    got = want.to(device)
    assert (got.dtype, got.device) == (dtype, device)
    assert torch.equal(got.cpu().view(torch.uint8), want.view(torch.uint8))
    torch_xla.sync()
    assert torch.equal(got.cpu().view(torch.uint8), want.view(torch.uint8))


def test_special_numbers_survive(device):
    want = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 1e-30, 3e38])
    got = want.to(device).cpu()
    assert torch.equal(got.view(torch.int32), want.view(torch.int32))


@pytest.mark.parametrize(
    "layout",
    [
        lambda x: x,
        lambda x: x.t(),
        lambda x: x[::2, 1:],
        lambda x: x[0].expand(3, -1),
        lambda x: x.diagonal(),
        lambda x: x[:0],
        lambda x: x[1, 1],
        lambda x: x.unfold(1, 2, 1),
    ],
)
def test_layouts_of_both_sides(device, layout):
    base = torch.arange(20.0).view(4, 5)
    want = layout(base)
    up = want.to(device)
    assert up.stride() == want.to("cpu", copy=True).stride()
    assert torch.equal(up.cpu(), want)
    down = layout(base.to(device))
    assert down.stride() == want.stride()
    assert torch.equal(down.cpu(), want)


def test_copy_into_host_views_and_device_views(device):
    host = torch.zeros(4, 4)
    host.t()[1:3, ::2].copy_(torch.arange(4.0, device=device).view(2, 2))
    assert host[::2, 1:3].tolist() == [[0, 2], [1, 3]]
    on_device = torch.zeros(4, 4, device=device)
    on_device.t()[1:3, ::2].copy_(torch.arange(4).view(2, 2))
    assert torch.equal(on_device.cpu(), host)


def test_copy_broadcasts_and_converts(device):
    x = torch.zeros(2, 3, dtype=torch.int32, device=device)
    x.copy_(torch.tensor([1.9, -2.9, 3.0]))
    assert x.tolist() == [[1, -2, 3]] * 2
    x.copy_(torch.tensor(True, device=device))
    assert x.tolist() == [[1, 1, 1]] * 2
    host = torch.zeros(2, 3, dtype=torch.float64)
    host.copy_(torch.tensor([1.5, 2.5, 3.5], dtype=torch.bfloat16, device=device))
    assert host.tolist() == [[1.5, 2.5, 3.5]] * 2
    with pytest.raises(RuntimeError, match=r"broadcast|match"):
        x.copy_(torch.zeros(4, device=device))
    with pytest.raises(RuntimeError, match=r"broadcast|match"):
        torch.zeros(2).copy_(torch.zeros(3, device=device))


def test_uploads_do_not_see_later_changes(device):
    host = torch.arange(1000.0)
    on_device = host.to(device, non_blocking=True)
    host.zero_()
    assert on_device[-1].item() == 999
    back = on_device.to("cpu", non_blocking=True)
    on_device.zero_()
    assert back[-1].item() == 999


def test_to_returns_self_when_nothing_changes(device):
    x = torch.zeros(2, device=device)
    assert x.to(device) is x
    assert x.to("xla") is x
    assert x.to(torch.float32) is x
    assert x.to(device, copy=True) is not x
    assert x.cpu().to("cpu").device.type == "cpu"


def test_construction(device):
    assert torch.tensor([[1, 2], [3, 4]], device=device).tolist() == [[1, 2], [3, 4]]
    assert torch.as_tensor(np.arange(3), device=device).tolist() == [0, 1, 2]
    assert torch.tensor(2.5, device=device).item() == 2.5
    x = torch.zeros(2, device=device)
    assert x.new_tensor([1, 2]).device == device
    assert x.new_zeros(2, 2).tolist() == [[0, 0], [0, 0]]
    assert x.new_full((2,), 3).tolist() == [3, 3]
    with device:
        assert torch.ones(2).device == device
    assert torch.stack([x.sum(), x.sum() + 1]).tolist() == [0, 1]


# --- Values ---


def test_scalars(device):
    x = torch.tensor([3.5], device=device)
    assert x.item() == 3.5
    assert float(x) == 3.5
    assert int(x) == 3
    assert bool(x)
    assert f"{x.sum():.2f}" == "3.50"
    assert complex(torch.tensor(1 + 2j, device=device)) == 1 + 2j
    assert torch.tensor(True, device=device).item() is True
    assert [1, 2, 3][torch.tensor(1, device=device)] == 2
    assert list(range(torch.tensor(2, device=device))) == [0, 1]
    assert torch.tensor(2**63 - 1, device=device).item() == 2**63 - 1
    assert torch.tensor(2**64 - 1, dtype=torch.uint64, device=device).item() == 2**64 - 1
    with pytest.raises(RuntimeError, match="cannot be converted to Scalar"):
        torch.zeros(2, device=device).item()
    with pytest.raises(RuntimeError, match="ambiguous"):
        bool(torch.zeros(2, device=device))


def test_sequences(device):
    x = torch.arange(6, device=device).view(3, 2)
    assert x.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert [row.tolist() for row in x] == x.tolist()
    assert len(x) == 3
    assert 4 in x
    assert 9 not in x
    a, b, c = x
    assert (a.sum() + c.sum()).item() == 10
    assert (torch.stack([b, b]) == b).all()


def test_numpy(device):
    x = torch.arange(3.0, device=device)
    with pytest.raises(TypeError, match="cpu"):
        x.numpy()
    assert x.numpy(force=True).tolist() == [0, 1, 2]
    assert x.cpu().numpy().dtype == np.float32
    assert x.detach().cpu().numpy().tolist() == [0, 1, 2]


def test_equality(device):
    x = torch.arange(3.0, device=device)
    assert torch.equal(x, x.clone())
    assert not torch.equal(x, x + 1)
    assert not torch.equal(x, x[:2])
    torch.testing.assert_close(x, x.clone())
    assert torch.allclose(x, x + 1e-9)


@pytest.mark.parametrize(
    "make",
    [
        lambda d: torch.arange(3.0, device=d),
        lambda d: torch.arange(6, device=d).view(2, 3).t(),
        lambda d: torch.tensor([True, False], device=d),
        lambda d: torch.tensor(1.5, device=d),
        lambda d: torch.zeros(0, 3, device=d),
        lambda d: torch.tensor([1 + 2j], device=d),
        lambda d: torch.linspace(0, 1, 2000, device=d),
        lambda d: torch.tensor([1e-8, 1e8, float("nan")], device=d),
        lambda d: torch.ones(2, dtype=torch.bfloat16, device=d),
        lambda d: torch.ones(2, device=d, requires_grad=True),
        lambda d: torch.nn.Parameter(torch.ones(2, device=d)),
    ],
)
def test_printing(device, make):
    def without_device(text):
        return "".join(text.replace(", device='xla:0'", "").replace("device='xla:0'", "").split())

    want, got = make(torch.device("cpu")), make(device)
    assert "device='xla:0'" in repr(got)
    assert without_device(repr(got)) == without_device(repr(want))
    assert without_device(str(got)) == without_device(str(want))


def test_printing_of_what_autograd_made(device):
    x = torch.ones(2, device=device, requires_grad=True)
    assert "grad_fn=<MulBackward0>" in repr(x * 2)


# --- Copies of objects ---


def test_deepcopy(device):
    x = torch.arange(3.0, device=device, requires_grad=True)
    (x * x).sum().backward()
    y = copy.deepcopy(x)
    assert y.device == device
    assert y.requires_grad
    assert y.is_leaf
    with torch.no_grad():
        x.zero_()
    assert y.tolist() == [0, 1, 2]
    assert y.grad.tolist() == [0, 2, 4]
    assert copy.copy(x).data_ptr() == x.data_ptr()
    with pytest.raises(RuntimeError, match="deepcopy"):
        copy.deepcopy(x * 2)


def test_deepcopy_of_a_module_and_its_optimizer(device):
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)).to(device)
    model[0].weight.my_mark = 1
    twin = copy.deepcopy(model)
    with torch.no_grad():
        model[0].weight.zero_()
    assert twin[0].weight.abs().sum().item() != 0
    assert twin[0].weight.device == device
    assert isinstance(twin[0].weight, torch.nn.Parameter)
    assert twin[1].running_var.tolist() == [1, 1]


def test_deepcopy_keeps_what_appears_twice(device):
    x = torch.ones(2, device=device)
    a, b = copy.deepcopy([x, x])
    assert a is b
    a += 1
    assert x.tolist() == [1, 1]


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickling(device, protocol):
    x = torch.arange(6.0, device=device).view(2, 3).t()
    parameter = torch.nn.Parameter(torch.ones(2, device=device), requires_grad=False)
    y, q = pickle.loads(pickle.dumps((x, parameter), protocol))
    assert y.device == device
    assert torch.equal(y.cpu(), x.cpu())
    assert isinstance(q, torch.nn.Parameter)
    assert not q.requires_grad


# --- Files ---


def stored(data, **options):
    file = io.BytesIO()
    torch.save(data, file)
    file.seek(0)
    return torch.load(file, **options)


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("map_location", [None, "cpu", "xla", torch.device("xla:0")])
def test_saving_and_loading(device, map_location, weights_only):
    data = {
        "plain": torch.arange(4.0, device=device),
        "pending": torch.arange(4.0, device=device) * 2,
        "view": torch.arange(6, device=device).view(2, 3).t(),
        "half": torch.ones(2, dtype=torch.bfloat16, device=device),
        "host": torch.ones(2),
        "empty": torch.zeros(0, 2, device=device),
        "grad": torch.ones(2, device=device, requires_grad=True),
    }
    loaded = stored(data, map_location=map_location, weights_only=weights_only)
    for name, want in data.items():
        got = loaded[name]
        if map_location is None:
            assert got.device == want.device, name
        else:
            assert got.device.type == torch.device(map_location).type, name
        assert (got.dtype, got.shape) == (want.dtype, want.shape), name
        assert torch.equal(got.cpu(), want.cpu()), name
        assert got.requires_grad == want.requires_grad, name


def test_loading_host_files_to_the_device(device):
    data = {"a": torch.arange(3.0), "b": torch.arange(6).view(2, 3).t()}
    for location in ("xla", "xla:0", device, lambda storage, place: storage, {"cpu": "xla:0"}):
        loaded = stored(data, map_location=location)
        assert loaded["a"].tolist() == [0, 1, 2]
        if not callable(location):
            assert loaded["a"].device == device
            assert loaded["b"].device == device
        assert loaded["b"].tolist() == data["b"].tolist()


def test_what_shares_storage_in_a_host_file_shares_it_on_the_device(device):
    base = torch.arange(4.0)
    loaded = stored([base, base[2:], base.view(2, 2)], map_location=device)
    loaded[0] += 10
    assert loaded[1].tolist() == [12, 13]
    assert loaded[2].tolist() == [[10, 11], [12, 13]]


@pytest.mark.parametrize("map_location", [None, "cpu", "xla", lambda storage, place: storage])
@pytest.mark.parametrize("zip_file", [True, False])
def test_what_shares_storage_shares_it_in_the_file(device, map_location, zip_file):
    base = torch.arange(4.0, device=device) * 2
    file = io.BytesIO()
    torch.save([base, base[2:], base.view(2, 2).t()], file, _use_new_zipfile_serialization=zip_file)
    file.seek(0)
    loaded = torch.load(file, map_location=map_location)
    loaded[0] += 10
    assert loaded[0].tolist() == [10, 12, 14, 16]
    assert loaded[1].tolist() == [14, 16]
    assert loaded[2].tolist() == [[10, 14], [12, 16]]
    assert loaded[2].stride() == (1, 2)
    assert loaded[0].device.type == ("cpu" if callable(map_location) else map_location or "xla")


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
def test_every_dtype_can_be_saved(device, dtype):
    want = torch.tensor([[0, 1, 2], [3, 4, 1]]).to(dtype)
    for location in (None, "cpu"):
        got = stored(want.to(device), map_location=location)
        assert got.dtype == dtype
        assert torch.equal(got.cpu().view(torch.uint8), want.view(torch.uint8))


def test_loaded_tensors_are_no_views_of_bytes(device):
    x = stored(torch.arange(6.0, device=device).view(2, 3))
    torch_xla.sync()
    assert "bitcast" not in torch_xla._XLAC._get_stablehlo([x + 1])


def test_lazy_bits_are_saved(device):
    x = torch.tensor([1 + 2j, 3 - 4j], device=device)
    for y in (x.conj(), x.conj().imag):
        for location in (None, "cpu"):
            assert torch.equal(stored(y, map_location=location).cpu(), y.cpu())


def test_state_dicts_of_tied_weights(device):
    def make():
        model = torch.nn.Sequential(torch.nn.Embedding(3, 2), torch.nn.Linear(2, 3, bias=False))
        model[1].weight = model[0].weight
        return model.to(device)

    model, other = make(), make()
    state = stored(model.state_dict(), map_location="cpu")
    other.load_state_dict(state)
    assert other[0].weight is other[1].weight
    assert torch.equal(other[0].weight.cpu(), model[0].weight.cpu())


def test_optimizer_state(device):
    model = torch.nn.Linear(2, 2).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.ones(1, 2, device=device)).sum().backward()
    optimizer.step()
    state = stored(optimizer.state_dict(), map_location="cpu")
    fresh = torch.optim.AdamW(model.parameters(), lr=0.1)
    fresh.load_state_dict(state)
    moment = fresh.state[model.weight]["exp_avg"]
    assert moment.device == device
    assert torch.equal(moment.cpu(), optimizer.state[model.weight]["exp_avg"].cpu())


def test_whole_modules_can_be_saved(device):
    model = torch.nn.Linear(2, 3).to(device)
    loaded = stored(model, map_location="cpu", weights_only=False)
    assert torch.equal(loaded.weight, model.weight.cpu())
    again = stored(model, weights_only=False)
    assert again.weight.device == device


WHOLE = [
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint16, torch.uint32, torch.uint64),
]


@pytest.mark.parametrize("to", WHOLE, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_casts_out_of_range(device, dtype, to):
    """As CPU casts vectors; its loop for what is left over may differ, so none is left over."""
    numbers = [-1.5, -200.7, 255.9, 256.5, 300.0, -129.0, 128.0, 4e4, -4e4, 7e4, 2.2e9, -2.2e9]
    numbers += [5e9, -5e9, 9.3e18, 1e19, -1e19, float("inf"), -float("inf"), float("nan")]
    x = torch.tensor(numbers).to(dtype).repeat(32)
    expected = x.to(to)
    assert torch.equal(x.to(device).to(to).cpu(), expected)
    out = torch.empty_like(x, dtype=to, device=device)
    assert torch.equal(out.copy_(x.to(device)).cpu(), expected)


class TestDeepCopies:
    """What shares memory shares it in a deep copy, too."""

    def test_of_views(self, device):
        whole = torch.arange(6.0, device=device)
        a, b, column = copy.deepcopy([whole, whole[2:], whole.view(3, 2)[:, 1]])
        b.zero_()
        assert a.tolist() == [0, 1, 0, 0, 0, 0] and column.tolist() == [1, 0, 0]
        assert (b.storage_offset(), column.stride()) == (2, (2,))
        assert whole.tolist() == [0, 1, 2, 3, 4, 5]

    def test_of_one_view(self, device):
        x = copy.deepcopy(torch.arange(6.0, device=device).expand(2, 6)[:, 3:])
        assert (x.storage_offset(), x.stride(), x.untyped_storage().nbytes()) == (3, (0, 1), 24)
        assert x.tolist() == [[3, 4, 5], [3, 4, 5]]

    def test_of_another_dtype(self, device):
        x = torch.ones(4, device=device)
        bits, y = copy.deepcopy((x.view(torch.int32)[1:3], x))
        bits.zero_()
        assert y.tolist() == [1, 0, 0, 1]

    def test_of_a_conjugate(self, device):
        x = torch.tensor([1 + 2j, 3j], device=device).conj()
        y = copy.deepcopy(x)
        assert not y.is_conj() and torch.equal(y.cpu(), x.cpu())

    def test_of_a_leaf_with_its_gradient(self, device):
        x = torch.ones(3, device=device, requires_grad=True)
        (x * 2).sum().backward()
        x.note = [1]
        y, z = copy.deepcopy([x, x])
        assert y is z and y.requires_grad and y.grad.tolist() == [2, 2, 2]
        assert y.grad is not x.grad and y.note == [1] and y.note is not x.note
        with pytest.raises(RuntimeError, match="graph leaves"):
            copy.deepcopy(x * 2)

    def test_of_buffers(self, device):
        module = torch.nn.Module()
        module.register_buffer("table", torch.arange(4.0, device=device))
        module.register_buffer("part", module.table[1:3])
        other = copy.deepcopy(module)
        other.table.zero_()
        assert other.part.tolist() == [0, 0] and module.part.tolist() == [1, 2]
