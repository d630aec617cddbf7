"""csrc/lazy/complex_half.cpp: complex32, which XLA does not have, against CPU."""

from __future__ import annotations

import torch


def _halves(tensor):
    return torch.view_as_real(tensor.cpu())


def _numbers(*sizes):
    torch.manual_seed(0)
    return torch.randn(*sizes, dtype=torch.complex64).to(torch.complex32)


def test_there_and_back(device):
    x = _numbers(3, 4)
    on_device = x.to(device)
    assert on_device.dtype == torch.complex32 and on_device.stride() == x.stride()
    assert torch.equal(_halves(on_device), _halves(x))
    assert torch.equal(on_device.to(torch.complex64).cpu(), x.to(torch.complex64))
    assert on_device[1, 2].item() == x[1, 2].item()


def test_views(device):
    x = _numbers(3, 4)
    on_device = x.to(device)
    for view in (
        lambda t: t.mT,
        lambda t: t[1:, ::2],
        lambda t: t.conj(),
        lambda t: t[2].view(2, 2),
    ):
        assert torch.equal(_halves(view(on_device).resolve_conj()), _halves(view(x).resolve_conj()))
    assert torch.equal(on_device.real.cpu(), x.real)
    assert torch.equal(torch.view_as_real(on_device).cpu(), torch.view_as_real(x))


def test_writes_through_views(device):
    results = []
    for x in (_numbers(3, 4), _numbers(3, 4).to(device)):
        x[1:, 1].fill_(2j)
        x.t()[2].mul_(3)
        torch.view_as_real(x)[0, 0, 1] = 7
        results.append(_halves(x))
    assert torch.equal(*results)


def test_gradient(device):
    x = torch.randn(3, device=device).requires_grad_()
    (x.chalf().to(torch.complex64) * 2).real.sum().backward()
    assert x.grad.cpu().tolist() == [2.0, 2.0, 2.0]
