"""csrc/aten/convolution.cpp against CPU."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from harness import DEVICE, check_call, check_errors, check_sample, ops, pairs, samples

from torch_xla import _XLAC

OPS = ops(
    "nn.functional.conv1d",
    "nn.functional.conv2d",
    "nn.functional.conv3d",
    "nn.functional.conv_transpose1d",
    "nn.functional.conv_transpose2d",
    "nn.functional.conv_transpose3d",
)


@pytest.mark.parametrize("op, dtype", pairs(OPS))
def test_values(op, dtype):
    for sample in samples(op, dtype, 5 if dtype == torch.float32 else 2):
        check_sample(op, sample, dtype)


@pytest.mark.parametrize("op", [op for op in OPS if op.error_inputs_func], ids=lambda op: op.name)
def test_errors(op):
    check_errors(op)


def tensor(*sizes, dtype=torch.float32):
    return torch.randn(*sizes, dtype=torch.float64).to(dtype).requires_grad_()


# Sizes here are below those from which torch's kernels are faster: "always" reaches them too.
@pytest.fixture(params=["never", "always"])
def kernels(request):
    _XLAC._set_cpu_kernels(request.param)
    yield request.param
    _XLAC._set_cpu_kernels("faster")


GEOMETRIES = [
    dict(),
    dict(stride=2),
    dict(stride=2, padding=1),
    dict(padding=2, dilation=2),
    dict(stride=3, padding=1, dilation=2, groups=2),
    dict(padding=(1, 2), groups=4),
    dict(padding="same"),
    dict(padding="valid", stride=2),
]


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_geometry(geometry, kernels):
    groups = geometry.get("groups", 1)
    check_call(
        lambda *args: F.conv2d(*args, **geometry),
        (tensor(2, 4, 9, 8), tensor(8, 4 // groups, 3, 3), tensor(8)),
    )


@pytest.mark.parametrize(
    "geometry",
    [
        dict(),
        dict(stride=2, output_padding=1),
        dict(stride=3, padding=1, dilation=2, output_padding=2),
        dict(stride=2, groups=2),
        dict(dilation=3, output_padding=2),
    ],
    ids=str,
)
def test_transposed(geometry, kernels):
    groups = geometry.get("groups", 1)
    check_call(
        lambda *args: F.conv_transpose2d(*args, **geometry),
        (tensor(2, 4, 5, 4), tensor(4, 6 // groups, 3, 2), tensor(6)),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("which", ["input", "weight", "both"])
def test_channels_last(dtype, which, kernels):
    x, w = tensor(2, 3, 6, 5, dtype=dtype), tensor(4, 3, 3, 3, dtype=dtype)
    last = torch.channels_last
    x = x if which == "weight" else x.detach().to(memory_format=last).requires_grad_()
    w = w if which == "input" else w.detach().to(memory_format=last).requires_grad_()
    check_call(F.conv2d, (x, w))


def test_channels_last_3d(kernels):
    x = torch.randn(2, 3, 4, 5, 6).to(memory_format=torch.channels_last_3d).requires_grad_()
    check_call(F.conv3d, (x, tensor(4, 3, 2, 2, 2)))


def test_empty_batch(kernels):
    check_call(F.conv2d, (tensor(0, 3, 6, 5), tensor(4, 3, 3, 3), tensor(4)))


def test_gradient_of_gradient(kernels):
    def penalty(x, w):
        y = F.conv2d(x, w, stride=2, padding=1)
        grads = torch.autograd.grad(y.square().sum(), (x, w), create_graph=True)
        return sum(g.square().sum() for g in grads)

    check_call(penalty, (tensor(1, 2, 5, 5), tensor(3, 2, 3, 3)))


@pytest.mark.parametrize(
    "call",
    [
        lambda x, w: F.conv2d(x, w.double()),
        lambda x, w: F.conv2d(x, w, torch.ones(5, device=DEVICE)),
        lambda x, w: F.conv2d(x, w, torch.ones(4, device=DEVICE).double()),
        lambda x, w: F.conv2d(x[:, :2], w),
        lambda x, w: F.conv2d(x, w, stride=0),
        lambda x, w: F.conv2d(x, w, padding=-1),
        lambda x, w: F.conv2d(x, w, groups=2),
        lambda x, w: F.conv2d(x[:, :, :2, :2], w),
        lambda x, w: F.conv2d(x, w.cpu()),
        lambda x, w: F.conv2d(x[0, 0], w),
        lambda x, w: F.conv2d(x.bool(), w.bool()),
        lambda x, w: F.conv_transpose2d(x, w.transpose(0, 1), output_padding=3),
    ],
)
def test_mismatches_raise(call):
    with pytest.raises(RuntimeError):
        call(torch.randn(1, 3, 6, 6, device=DEVICE), torch.randn(4, 3, 3, 3, device=DEVICE))


def test_torch_kernels_run_where_they_are_faster(metrics):
    def run(*weight):
        w = torch.randn(*weight, device=DEVICE)
        y = F.conv2d(torch.randn(2, 64, 33, 33, device=DEVICE), w, groups=64 // weight[1])
        assert y.isfinite().all()
        return _XLAC._xla_counter_value("xla::host_call.convolution") or 0

    assert run(1, 64, 1, 1) == 0
    calls = run(64, 64, 3, 3)
    if not calls:
        pytest.skip("not the CPU plugin, or one without custom calls")
    assert calls == 1


def test_only_known_uses():
    with pytest.raises(ValueError, match="'never', 'faster' or 'always', got 'sometimes'"):
        _XLAC._set_cpu_kernels("sometimes")


def gradients_on(device, tensors, **geometry):
    inputs = [tensor.detach().to(device).requires_grad_() for tensor in tensors]
    out = F.conv2d(*inputs, **geometry)
    return out, *torch.autograd.grad(out.sin().sum(), inputs)


# A program finds its results where they were allocated when it ran before. Here those of the input
# and of the weight, and of the input and of the output, have as many bytes as each other.
@pytest.mark.parametrize(
    "sizes, geometry",
    [
        (((4, 8, 6, 6), (32, 4, 3, 3), (32,)), dict(groups=2)),
        (((4, 4, 6, 6), (4, 4, 6, 6), (4,)), dict(padding=3)),
        (((2, 8, 9, 9), (8, 8, 3, 3), (8,)), dict(padding=1)),
        (((1, 64, 24, 24), (64, 64, 3, 3), (64,)), dict(padding=1)),
    ],
    ids=str,
)
def test_again_and_again(sizes, geometry, kernels):
    for _ in range(4):
        tensors = [torch.randn(size) for size in sizes]
        expected = gradients_on("cpu", tensors, **geometry)
        for got, want in zip(gradients_on(DEVICE, tensors, **geometry), expected, strict=True):
            torch.testing.assert_close(got.cpu(), want, rtol=1e-3, atol=1e-3)


def test_host_memory_is_torchs_own(kernels):
    gradients_on(DEVICE, [torch.randn(2, 4, 8, 8), torch.randn(4, 4, 3, 3)])[0].cpu()
    tensor = torch.ones(2, 4, 8, 8)
    tensor.untyped_storage().resize_(16)
    assert tensor.untyped_storage().nbytes() == 16
    assert torch.ones(2, 4, 6, 6).share_memory_().sum() == 2 * 4 * 36
