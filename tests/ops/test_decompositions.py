"""torch_xla/_internal/decompositions.py, and out= forms made of composites, against CPU."""

from __future__ import annotations

import pytest
import torch
from harness import check_equal

aten = torch.ops.aten


def t(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(sum(sizes))).to(dtype)


def scales(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.linspace(0.05, 0.3, n), torch.arange(n, dtype=torch.int32) - 1


# Each makes its tensors on `d`.
CALLS = {
    "fake quantization": lambda d: torch.fake_quantize_per_tensor_affine(
        (t(5, 7) * 9).to(d), 0.1, 3, -16, 15
    ),
    "fake quantization by tensors": lambda d: torch.fake_quantize_per_tensor_affine(
        (t(5, 7) * 9).to(d), *(x[0].to(d) for x in scales(3)), 0, 255
    ),
    "fake quantization of channels": lambda d: torch.fake_quantize_per_channel_affine(
        (t(5, 7) * 9).to(d), *(x.to(d) for x in scales(7)), 1, -128, 127
    ),
    **{
        f"learned fake quantization of {what}{part}": lambda d, name=name, args=args, n=n, k=k: (
            getattr(aten, name)(
                *(x.to(d) for x in k),
                (t(5, 7) * 4).to(d),
                torch.linspace(0.05, 0.3, n).to(d),
                torch.linspace(-1.5, 2.0, n).to(d),
                *args,
                -16,
                15,
                0.5,
            )
        )
        for what, n, args in (("tensors", 1, ()), ("channels", 7, (1,)))
        for part, k in (("", ()), (", gradients", (t(7, 5).t(),)))
        for name in [
            f"_fake_quantize_learnable_per_{what[:-1]}_affine{'_backward' if part else ''}"
        ]
    },
    **{
        f"softmax under a mask, type {kind}": lambda d, kind=kind, mask=mask: aten._masked_softmax(
            t(2, 4, 3, 3).to(d), mask.to(d), 3, kind
        )
        for kind, mask in enumerate((t(3, 3) > 0.5, t(2, 3) > 0.5, t(2, 4, 3, 3) > 0))
    },
    "gradient of softmax under a mask": lambda d: aten._masked_softmax_backward(
        t(2, 3, 3).to(d), t(2, 3, 3).softmax(-1).to(d), (t(2, 3, 3) > 0).to(d)
    ),
    "heads of an attention": lambda d: aten._transform_bias_rescale_qkv(
        t(2, 5, 24).to(d), t(24).to(d), 4
    ),
    "statistics of a batch": lambda d: aten.batch_norm_update_stats(
        t(3, 4, 2).to(d), t(4).to(d), t(4).abs().to(d), 0.1
    ),
    "statistics of a batch of one": lambda d: aten.batch_norm_update_stats(
        t(1, 4).to(d), t(4).to(d), t(4).abs().to(d), 0.1
    ),
    "gradients of _slow_conv2d": lambda d: aten._slow_conv2d_backward.grad_input(
        *(x.to(d) for x in (t(2, 4, 3, 3), t(2, 3, 4, 4), t(4, 3, 2, 2))),
        [2, 2],
        [1, 1],
        [0, 0],
        **{name: torch.empty(0, device=d) for name in ("grad_input", "grad_weight", "grad_bias")},
    ),
    "CTC of lengths in tensors": lambda d: aten._ctc_loss.Tensor(
        t(10, 3, 5).log_softmax(-1).to(d),
        torch.ones(3, 4, dtype=torch.int64, device=d),
        torch.tensor([10, 9, 8], device=d),
        torch.tensor([4, 3, 2], device=d),
    )[0],
    "jvp of glu": lambda d: torch.func.jvp(
        lambda x: torch.nn.functional.glu(x, 1), (t(3, 4).to(d),), (t(4, 3).t().to(d),)
    ),
    "jvp of glu's gradient": lambda d: torch.func.jvp(
        torch.func.grad(lambda x: torch.nn.functional.glu(x, 0).square().sum()),
        (t(4, 3).to(d),),
        (t(3, 4).t().to(d),),
    ),
    "slow_conv3d": lambda d: torch._C._nn.slow_conv3d(
        t(2, 3, 4, 5, 6).to(d), t(4, 3, 2, 2, 2).to(d), (2, 2, 2), t(4).to(d), 1, 1
    ),
    "slow_conv_dilated2d": lambda d: torch._C._nn.slow_conv_dilated2d(
        t(2, 3, 8, 9).to(d), t(4, 3, 2, 3).to(d), (2, 3), t(4).to(d), 2, 1, 2
    ),
    "slow_conv_transpose3d": lambda d: torch._C._nn.slow_conv_transpose3d(
        t(1, 3, 3, 4, 3).to(d), t(3, 2, 2, 2, 2).to(d), (2, 2, 2), t(2).to(d), 2, 1, 1, 1
    ),
    "_add_relu": lambda d: aten._add_relu.Scalar(t(4, 3).to(d), 0.5),
    "_aminmax": lambda d: aten._aminmax.dim(t(4, 3).to(d), 1, True),
    "a mean over cells": lambda d: torch._C._nn.adaptive_avg_pool2d(
        t(2, 3, 8, 9).to(d), (3, 2), out=torch.empty(0, device=d)
    ),
    "eigenvalues": lambda d: (
        torch.linalg.eigvals(
            t(3, 3).to(d) + torch.eye(3, device=d) * 9,
            out=torch.empty(0, dtype=torch.cfloat, device=d),
        )
        .real.sort()
        .values
    ),
    "range": lambda d: torch.range(1, 9, 2, out=torch.empty(0, device=d)),
}


@pytest.mark.parametrize("name", CALLS)
def test_as_on_cpu(name, device, no_fallback):
    check_equal(CALLS[name]("cpu"), CALLS[name](device), strides=False)


def test_gradient_of_fake_quantization(device):
    def gradient(d):
        x = (t(5, 7) * 9).to(d).requires_grad_()
        torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -16, 15).square().sum().backward()
        return x.grad

    check_equal(gradient("cpu"), gradient(device), strides=False)


def test_same_storage_and_view(device, no_fallback):
    x = torch.zeros(3, 4, device=device)
    assert x.is_set_to(x.view(3, 4))
    assert not x.is_set_to(x.clone())
    assert not x.is_set_to(x[1:])


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8, torch.int8], ids=str)
def test_histogram_of_integers(dtype, device, no_fallback):
    """CPU knows none, and models written for accelerators count with them."""
    x = (t(6, 50) * 4).round().clamp(0, 7).to(dtype)
    for numbers in (x, x[0, :1], x[0, 0], x[:0]):
        for bins, least, greatest in ((8, 0, 7), (4, 0, 0), (5, 2, 5), (3, 7, 7)):
            expected = torch.histc(numbers.double(), bins, least, greatest)
            got = torch.histc(numbers.to(device), bins, least, greatest)
            check_equal(expected.to(dtype), got)
    with pytest.raises(RuntimeError, match="max must be larger than min"):
        torch.histc(x.to(device), 4, 3, 2)
