"""Storages: set_, resize_, .data, aliasing, version counters."""

import pytest
import torch

import torch_xla


def both(device, program):
    """Runs a program on CPU and on xla; its results must agree, geometry included."""
    want, got = program(torch.device("cpu")), program(device)
    for a, b in zip(got, want, strict=True):
        if isinstance(b, torch.Tensor):
            assert (a.shape, a.stride(), a.storage_offset()) == (
                b.shape,
                b.stride(),
                b.storage_offset(),
            )
            torch.testing.assert_close(a.cpu(), b, rtol=0, atol=0)
        else:
            assert a == b


def test_set_to_another_tensor(device):
    def program(device):
        x, y = torch.zeros(3, device=device), torch.arange(6.0, device=device).view(2, 3)
        x.set_(y)
        x[1, 1] = 9
        z = torch.empty(0, device=device).set_(y.untyped_storage(), 1, (2, 2), (3, 1))
        z += 1
        w = torch.ones(4, device=device).set_(y[1])
        return [x, y, z, w, y.data_ptr() == x.data_ptr()]

    both(device, program)


def test_set_to_nothing(device):
    def program(device):
        x = torch.ones(3, device=device)
        view = x[1:]
        x.set_()
        return [x, view, x.numel(), x.untyped_storage().nbytes()]

    both(device, program)


def test_set_checks(device):
    x = torch.ones(3, device=device)
    with pytest.raises(RuntimeError):
        x.set_(torch.ones(3))
    with pytest.raises(RuntimeError):
        x.set_(torch.ones(3, dtype=torch.int32, device=device))
    with pytest.raises(RuntimeError):
        x.set_(x.untyped_storage(), -1, (1,), (1,))
    assert x.tolist() == [1, 1, 1]


def test_resize(device):
    def program(device):
        x = torch.arange(6.0, device=device).view(2, 3)
        view = x[1]
        x.resize_(4)
        first = x.clone()
        x.resize_(2, 2)
        x.resize_(3, 4)
        x.view(-1)[6:] = 7
        y = torch.zeros(0, device=device).resize_(2, 2).fill_(5)
        z = torch.zeros(3, device=device).resize_(0)
        w = torch.arange(3, device=device)[1:].resize_(2)
        v = torch.zeros(1, 2, 3, 4, device=device)
        v.resize_(1, 2, 3, 4, memory_format=torch.channels_last)
        return [x, view, first, y, z, w, v, x.untyped_storage().nbytes()]

    both(device, program)


def test_resized_storages_keep_what_other_tensors_see(device):
    def program(device):
        x = torch.arange(4, device=device)
        view = x.view(2, 2).t()
        x.resize_(6)
        x[4:] = -1
        view += 10
        return [x, view]

    both(device, program)


def test_resize_of_a_leaf_is_refused(device):
    with pytest.raises(RuntimeError, match="cannot resize variables that require grad"):
        torch.zeros(3, device=device, requires_grad=True).resize_(4)


def test_as_strided(device):
    def program(device):
        x = torch.arange(12.0, device=device)
        windows = x.as_strided((3, 3), (2, 3), 1)
        x[1] = 100
        y = x[6:].as_strided((2, 2), (3, 1), 2)
        y.fill_(-1)
        z = torch.zeros(6, device=device)
        z.as_strided((2, 2), (3, 1), 1).copy_(torch.ones(2, 2, device=device))
        overlapping = torch.zeros(4, device=device)
        overlapping.as_strided((3, 2), (1, 1)).fill_(2)
        in_place = torch.arange(6.0, device=device)
        in_place.as_strided_((2, 2), (1, 3))
        return [x, windows, y, z, overlapping, in_place]

    both(device, program)


def test_empty_strided(device):
    def program(device):
        results = []
        for sizes, strides in [
            ((2, 3), (1, 2)), ((2, 3), (4, 1)), ((2, 3), (0, 1)), ((), ()), ((0, 2), (5, 1)),
        ]:  # fmt: skip
            x = torch.empty_strided(sizes, strides, device=device).fill_(2)
            results += [x, x + 1, x.untyped_storage().nbytes()]
            results += [x.new_empty_strided((2,), (3,)).zero_()]
        return results

    both(device, program)


# --- .data = ---


def test_data_assignment_leaves_views_behind(device):
    def program(device):
        a = torch.zeros(4, device=device)
        view = a.view(2, 2)
        a.data = torch.ones(4, device=device)
        a += 1
        return [a, view]

    both(device, program)


def test_data_assignment_may_change_the_geometry(device):
    def program(device):
        p = torch.nn.Parameter(torch.zeros(4, device=device))
        same = p
        p.data = torch.arange(6.0, device=device).view(2, 3).t()
        (p * 2).sum().backward()
        p.data.mul_(3)
        return [same.detach(), p.grad, p is same, p.is_leaf, p._version]

    both(device, program)


def test_data_assignment_across_devices_keeps_the_object(device):
    p = torch.nn.Parameter(torch.arange(3.0))
    p.data = p.data.to(device)
    assert p.device == device
    (p * p).sum().backward()
    assert p.grad.tolist() == [0, 2, 4]
    p.grad = None
    p.data = p.data.cpu()
    assert p.device.type == "cpu"
    assert p.tolist() == [0, 1, 2]


def test_data_and_detach_alias(device):
    def program(device):
        x = torch.ones(3, device=device, requires_grad=True)
        y = x * 1
        y.data += 5
        y.detach()[0] = 0
        return [y.detach(), y._version, x.detach()]

    both(device, program)


# --- Version counters ---


def test_versions_count_writes_through_views(device):
    def program(device):
        x = torch.zeros(4, device=device)
        view, detached = x[:2], x.detach()
        view.add_(1)
        x.zero_()
        with torch.no_grad():
            x.view(2, 2)[0] = 3
        detached.mul_(2)
        return [x._version, view._version, detached._version, x.clone()._version, x.data._version]

    both(device, program)


@pytest.mark.parametrize("through_view", [False, True])
def test_a_saved_tensor_that_changed_is_an_error(device, through_view):
    for where in ("cpu", device):
        x = torch.ones(3, device=where, requires_grad=True)
        y = x * 2
        z = y * y
        (y[:1] if through_view else y).add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.sum().backward()


def test_in_place_on_a_leaf_is_an_error(device):
    x = torch.ones(3, device=device, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        x.add_(1)
    with pytest.raises(RuntimeError, match="view of a leaf Variable"):
        x[0].add_(1)
    with torch.no_grad():
        x.add_(1)
    assert x.tolist() == [2, 2, 2]


# --- Storages as objects ---


def test_storage_objects(device):
    x = torch.arange(4, dtype=torch.int16, device=device)
    storage = x.untyped_storage()
    assert storage.device == device
    assert storage.nbytes() == 8
    assert len(x.untyped_storage()) == 8
    host = storage.cpu()
    assert torch.tensor([], dtype=torch.int16).set_(host).tolist() == [0, 1, 2, 3]
    assert x.data_ptr() == storage.data_ptr() != 0
    assert x[1:].data_ptr() == x.data_ptr() + 2
    fresh = x.new_empty(4).untyped_storage()
    fresh.copy_(storage)
    assert x.new_empty(0).set_(fresh).tolist() == [0, 1, 2, 3]
    assert torch_xla._XLAC._xla_get_tensor_id(x) == torch_xla._XLAC._xla_get_tensor_id(x[2:])
    assert torch_xla._XLAC._xla_get_tensor_id(x) != torch_xla._XLAC._xla_get_tensor_id(x + 1)


def test_never_written_memory_is_readable(device):
    x = torch.empty(2, 3, device=device)
    assert x.shape == x.cpu().shape
    assert torch.empty(0, 3, device=device).tolist() == []
    assert torch.empty(3, device=device)[3:].tolist() == []


def test_swap_tensors(device):
    a, b = torch.zeros(2, device=device), torch.ones(3, device=device)
    torch.utils.swap_tensors(a, b)
    assert (a.tolist(), b.tolist()) == ([1, 1, 1], [0, 0])
