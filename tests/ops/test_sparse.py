"""csrc/aten/sparse.cpp against CPU."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from harness import DEVICE

DENSE = torch.tensor([[0.0, 1.0, 0.0], [2.0, 0.0, 3.0]])


def test_coordinates_go_both_ways():
    sparse = DENSE.to_sparse()
    on_device = sparse.to(DEVICE)
    assert on_device.device.type == "xla" and on_device.layout == torch.sparse_coo
    assert on_device.is_coalesced() and on_device._nnz() == 3
    assert torch.equal(on_device.cpu().to_dense(), DENSE)
    assert torch.equal(DENSE.to(DEVICE).to_sparse().to_dense().cpu(), DENSE)


def test_duplicates_add_up():
    sparse = torch.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (2, 2), device=DEVICE)
    assert sparse.coalesce().values().cpu().tolist() == [3.0]
    assert sparse.to_dense().cpu().tolist() == [[0.0, 3.0], [0.0, 0.0]]


@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_csc])
def test_compressed_layouts(layout):
    sparse = DENSE.to_sparse(layout=layout)
    on_device = sparse.to(DEVICE)
    assert on_device.layout == layout and on_device.device.type == "xla"
    assert torch.equal(on_device.cpu().to_dense(), DENSE)
    assert torch.equal(on_device.detach().to_dense().cpu(), DENSE)
    assert torch.equal(DENSE.to(DEVICE).to_sparse(layout=layout).cpu().values(), sparse.values())


def test_made_of_parts_on_the_device():
    sparse = DENSE.to_sparse_csr()
    parts = [t.to(DEVICE) for t in (sparse.crow_indices(), sparse.col_indices(), sparse.values())]
    made = torch.sparse_csr_tensor(*parts, (2, 3))
    assert made.device.type == "xla" and torch.equal(made.to_dense().cpu(), DENSE)
    assert torch.equal(made.clone().cpu().to_dense(), DENSE)
    with pytest.raises(RuntimeError):
        torch.sparse_csr_tensor(*parts, (1, 1))


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_products(layout):
    sparse = DENSE.to_sparse(layout=layout)
    right = torch.randn(3, 4)
    assert torch.allclose((sparse.to(DEVICE) @ right.to(DEVICE)).cpu(), sparse @ right)


def test_gradients_through_sparse():
    grads = []
    for device in ("cpu", DEVICE):
        x = DENSE.clone().to(device).requires_grad_()
        torch.sparse.mm(x.to_sparse(), torch.ones(3, 2, device=device)).sum().backward()
        grads.append(x.grad.cpu())
    assert torch.equal(*grads)


@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin"])
def test_gradients_of_reductions(reduce):
    grads = []
    for device in ("cpu", DEVICE):
        x = DENSE.to_sparse_csr().to(device).requires_grad_()
        y = torch.arange(6.0).view(3, 2).to(device).requires_grad_()
        torch.sparse.mm(x, y, reduce).sum().backward()
        grads.append((x.grad.values().cpu(), y.grad.cpu()))
    assert all(torch.equal(*pair) for pair in zip(*grads, strict=True))


def test_sparse_gradient_of_an_embedding_steps():
    results = []
    for device in ("cpu", DEVICE):
        weight = torch.arange(6.0).view(3, 2).to(device).requires_grad_()
        F.embedding(torch.tensor([0, 2, 2], device=device), weight, sparse=True).sum().backward()
        assert weight.grad.layout == torch.sparse_coo
        torch.optim.SGD([weight], lr=0.5).step()
        results.append(weight.detach().cpu())
    assert torch.equal(*results)


def test_in_place():
    sparse = DENSE.to_sparse().to(DEVICE)
    sparse.mul_(2)
    assert torch.equal(sparse.to_dense().cpu(), 2 * DENSE)
    dense = DENSE.to(DEVICE)
    dense.add_(sparse)
    assert torch.equal(dense.cpu(), 3 * DENSE)


def test_new_makes_sparse_tensors():
    on_device = DENSE.to_sparse().to(DEVICE)
    again = on_device.new(on_device._indices(), 2 * on_device._values(), on_device.size())
    assert again.device.type == "xla" and torch.equal(again.cpu().to_dense(), 2 * DENSE)
    for sizes in ((), (2, 3), (torch.Size((4,)),)):
        made = on_device.new(*sizes)
        expected = DENSE.to_sparse().new(*sizes)
        assert made.layout == torch.sparse_coo and made.device.type == "xla"
        assert made.size() == expected.size() and made._nnz() == 0
    with pytest.raises(TypeError):
        on_device.new("four")


@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_csc])
def test_compressed_layouts_in_place(layout):
    changes = (
        lambda t: t.fill_(2),
        lambda t: t.zero_(),
        lambda t: t.clone().zero_(),
        lambda t: t.copy_(2 * t),
        lambda t: t.mul_(3),
        torch.zeros_like,
        lambda t: torch.zeros_like(t, dtype=torch.int64),
        torch.ones_like,
        lambda t: torch.full_like(t, 4),
    )
    for change in changes:
        dense = []
        for device in ("cpu", DEVICE):
            result = change(DENSE.to_sparse(layout=layout).to(device))
            assert result.layout == layout and result.device.type == torch.device(device).type
            dense.append(result.cpu().to_dense())
        assert torch.equal(*dense)


@pytest.mark.parametrize(
    "layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr], ids=str
)
def test_saved_and_loaded(layout, tmp_path):
    dense = torch.arange(16.0).reshape(4, 4).tril()
    sparse = dense.to_sparse(layout=layout, blocksize=(2, 2) if "bsr" in str(layout) else None)
    torch.save(sparse.to(DEVICE), tmp_path / "sparse")
    for device in ("cpu", DEVICE):
        loaded = torch.load(tmp_path / "sparse", map_location=device)
        assert loaded.layout == layout and loaded.device.type == torch.device(device).type
        assert torch.equal(loaded.to_dense().cpu(), dense)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_csc], ids=str)
def test_products_with_compressed_matrices(layout):
    def run(device):
        sparse = DENSE.to_sparse(layout=layout).to(device)
        vector, dense = torch.arange(3.0, device=device), torch.ones(3, 2, device=device)
        dense.requires_grad_()
        product = sparse @ dense
        product.square().sum().backward()
        turned = sparse.t()
        assert turned.layout != layout and turned.size() == (3, 2)
        results = [product.detach(), dense.grad, turned.to_dense()]
        if layout == torch.sparse_csr:
            rows = torch.arange(6.0, device=device).view(2, 3)
            results += [sparse @ vector, F.linear(rows, sparse)]
        return [result.cpu() for result in results]

    for expected, got in zip(run("cpu"), run(DEVICE), strict=True):
        torch.testing.assert_close(got, expected)
