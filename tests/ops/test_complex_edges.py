"""Functions of complex numbers with an infinity, a NaN or a signed zero in a part
(csrc/aten/complex_math.cpp)."""

from __future__ import annotations

import pytest
import torch

PARTS = [torch.inf, -torch.inf, torch.nan, 0.0, -0.0, 1.5, -2.0, 1e30]
NAMES = (
    *(
        "exp",
        "exp2",
        "expm1",
        "log",
        "log1p",
        "log2",
        "log10",
        "sqrt",
        "rsqrt",
        "reciprocal",
        "sigmoid",
    ),
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


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_products_round_as_on_cpu(device, dtype):
    """Each real product is rounded before it is added: infinities cancel to NaN, numbers to 0."""
    huge = torch.finfo(dtype).max / 2
    parts = torch.tensor([0.0, 1.1, -501.0, 1001.2, huge, -huge, float("inf"), float("nan")])
    parts = parts.to(dtype.to_real())
    numbers = torch.complex(*torch.meshgrid(parts, parts, indexing="ij")).flatten()
    a, b = (t.contiguous() for t in torch.broadcast_tensors(numbers[:, None], numbers))
    torch.testing.assert_close(
        (a.to(device) * b.to(device)).cpu(), a * b, rtol=0, atol=0, equal_nan=True
    )


def test_linear_layers_have_gradients_of_gradients(device):
    generator = torch.Generator().manual_seed(0)
    tensors = [
        torch.randn(*size, dtype=torch.complex64, generator=generator)
        for size in ((5, 3), (4, 3), (4,))
    ]
    results = []
    for where in ("cpu", device):
        leaves = [t.to(where).requires_grad_() for t in tensors]
        y = torch.nn.functional.linear(*leaves)
        slopes = torch.autograd.grad((y * y * y.conj()).real.sum(), leaves, create_graph=True)
        total = sum((slope * slope.conj()).real.sum() for slope in slopes)
        results.append([g.cpu() for g in torch.autograd.grad(total, leaves)])
    torch.testing.assert_close(results[1], results[0])
