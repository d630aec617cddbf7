"""Functions of complex numbers with an infinity, a NaN or a signed zero in a part
(csrc/aten/complex_math.cpp)."""

from __future__ import annotations

import pytest
import torch

PARTS = [torch.inf, -torch.inf, torch.nan, 0.0, -0.0, 1.5, -2.0, 1e30]
NAMES = (
    *("exp", "expm1", "log", "log1p", "log2", "log10", "sqrt", "rsqrt", "reciprocal", "sigmoid"),
    *("sgn", "sin", "cos", "tan", "asin", "acos", "atan"),
    *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
)


def grid(dtype: torch.dtype) -> torch.Tensor:
    return torch.tensor([complex(re, im) for re in PARTS for im in PARTS], dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_as_on_cpu(device, dtype):
    z = grid(dtype)
    on_device = z.to(device)
    results = {name: getattr(torch, name)(on_device) for name in NAMES}
    text = []
    for name, result in results.items():
        want = torch.view_as_real(getattr(torch, name)(z))
        have = torch.view_as_real(result.cpu())
        same = torch.isclose(have, want, rtol=1e-5, atol=1e-6, equal_nan=True).all(-1)
        text += [
            f"{name}({z[i].item()}): {want[i].tolist()}, here {have[i].tolist()}"
            for i in (~same).nonzero()[:, 0].tolist()
        ]
    assert not text, "\n".join(text)


@pytest.mark.parametrize("name", NAMES)
def test_ordinary_numbers(device, name):
    z = torch.randn(50, dtype=torch.complex64, generator=torch.Generator().manual_seed(1))
    function = getattr(torch, name)
    gradients = []
    for where in ("cpu", device):
        x = z.to(where).requires_grad_()
        result = function(x)
        (gradient,) = torch.autograd.grad(result.abs().sum(), x)
        gradients.append((result.detach().cpu(), gradient.cpu()))
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-4)
