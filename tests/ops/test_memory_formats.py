"""Images that lie channels last: which operators keep that, for results and gradients, is CPU's."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from harness import DEVICE

LAST, LAST_3D = torch.channels_last, torch.channels_last_3d


def ones(x, *sizes):
    return torch.ones(sizes, device=x.device, dtype=x.dtype)


def zeros(x, *sizes):
    return torch.zeros(sizes, device=x.device, dtype=torch.long)


IMAGES = {
    "group_norm": lambda x: F.group_norm(x, 2),
    "group_norm with weights": lambda x: F.group_norm(x, 2, ones(x, 4), ones(x, 4)),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "instance_norm": F.instance_norm,
    "layer_norm": lambda x: F.layer_norm(x, (6,)),
    "local_response_norm": lambda x: F.local_response_norm(x, 2),
    "roll of channels": lambda x: x.roll(1, 1),
    "roll of pixels": lambda x: x.roll((1, 2), (2, 3)),
    "roll by nothing": lambda x: x.roll((1, 6), (1, 2)),
    "roll of elements": lambda x: x.roll(3),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x, 2),
    "pixel_unshuffle": lambda x: F.pixel_unshuffle(x, 2),
    "channel_shuffle": lambda x: F.channel_shuffle(x, 2),
    "flip": lambda x: x.flip(2),
    "rot90": lambda x: x.rot90(1, (2, 3)),
    "pad": lambda x: F.pad(x, (1, 1)),
    "pad by reflection": lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"),
    "pad by the edge": lambda x: F.pad(x, (1, 1, 1, 1), mode="replicate"),
    "pad circularly": lambda x: F.pad(x, (1, 1, 1, 1), mode="circular"),
    "max_pool2d": lambda x: F.max_pool2d(x, 2),
    "avg_pool2d": lambda x: F.avg_pool2d(x, 2),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, 2),
    "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, 2),
    "nearest": lambda x: F.interpolate(x, scale_factor=2),
    "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "bicubic": lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
    "grid_sample": lambda x: F.grid_sample(x, ones(x, 2, 3, 3, 2), align_corners=False),
    "conv2d": lambda x: F.conv2d(x, ones(x, 3, 4, 3, 3)),
    "conv_transpose2d": lambda x: F.conv_transpose2d(x, ones(x, 4, 3, 3, 3)),
    "cat": lambda x: torch.cat([x, x], 1),
    "stack": lambda x: torch.stack([x, x]),
    "softmax": lambda x: x.softmax(1),
    "dropout2d": lambda x: F.dropout2d(x),
    "dropout": lambda x: F.dropout(x),
    "glu": lambda x: F.glu(x, 1),
    "prelu": lambda x: F.prelu(x, ones(x, 4)),
    "mean": lambda x: x.mean((2, 3), keepdim=True),
    "sum": lambda x: x.sum(1, keepdim=True),
    "amax": lambda x: x.amax(1, keepdim=True),
    "std": lambda x: x.std(1, keepdim=True),
    "cumsum": lambda x: x.cumsum(1),
    "sort": lambda x: x.sort(1)[0],
    "topk": lambda x: x.topk(2, 1)[0],
    "index": lambda x: x[:, zeros(x, 2)],
    "index_select": lambda x: x.index_select(1, zeros(x, 2)),
    "gather": lambda x: x.gather(1, zeros(x, 2, 2, 6, 6)),
    "scatter": lambda x: x.scatter(1, zeros(x, 2, 2, 6, 6), 1.0),
    "masked_fill": lambda x: x.masked_fill(x > 0, 0.0),
    "masked_scatter": lambda x: x.masked_scatter(x > 0, x.detach()),
    "where": lambda x: torch.where(x > 0, x, 0),
    "repeat": lambda x: x.repeat(1, 2, 1, 1),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 1),
    "tril": lambda x: x.tril(),
    "matmul": lambda x: x @ x,
    "linear": lambda x: F.linear(x, ones(x, 5, 6)),
    "mse_loss": lambda x: F.mse_loss(x, x.detach() * 2, reduction="none"),
    "like": lambda x: torch.zeros_like(x) + torch.randn_like(x) * x,
}

VOLUMES = {
    "group_norm": lambda x: F.group_norm(x, 2),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "roll": lambda x: x.roll(1, 1),
    "max_pool3d": lambda x: F.max_pool3d(x, 2),
    "avg_pool3d": lambda x: F.avg_pool3d(x, 2),
    "nearest": lambda x: F.interpolate(x, scale_factor=2),
    "trilinear": lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"),
    "conv3d": lambda x: F.conv3d(x, ones(x, 3, 4, 3, 3, 3)),
    "silu": F.silu,
    "cat": lambda x: torch.cat([x, x], 1),
}


def strides(step, sizes, memory_format, device):
    x = torch.randn(sizes).to(device).to(memory_format=memory_format).requires_grad_()
    y = step(x)
    y.sum().backward()
    return y.stride(), x.grad.stride()


@pytest.mark.parametrize("name", IMAGES)
def test_images(name):
    sizes = (2, 4, 6, 6)
    expected = strides(IMAGES[name], sizes, LAST, "cpu")
    assert strides(IMAGES[name], sizes, LAST, DEVICE) == expected


@pytest.mark.parametrize("name", VOLUMES)
def test_volumes(name):
    sizes = (2, 4, 4, 6, 6)
    expected = strides(VOLUMES[name], sizes, LAST_3D, "cpu")
    assert strides(VOLUMES[name], sizes, LAST_3D, DEVICE) == expected


@pytest.mark.parametrize("gradient", [LAST, torch.contiguous_format])
def test_values_of_group_norm(gradient):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 4, 5, 3, generator=generator)
    weight, bias, grad = (torch.randn(*s, generator=generator) for s in ((4,), (4,), x.shape))
    results = []
    for device in ("cpu", DEVICE):
        inputs = [x.to(device).to(memory_format=LAST), weight.to(device), bias.to(device)]
        for each in inputs:
            each.requires_grad_()
        y = F.group_norm(inputs[0], 2, *inputs[1:])
        given = grad.to(device).to(memory_format=gradient)
        results.append([y, *torch.autograd.grad(y, inputs, given)])
    for want, have in zip(*results, strict=True):
        torch.testing.assert_close(have.cpu(), want)


def test_wrong_groups():
    x = torch.randn(2, 4, 3, 3, device=DEVICE).to(memory_format=LAST)
    with pytest.raises(RuntimeError, match="divisible by num_groups"):
        F.group_norm(x, 3)
