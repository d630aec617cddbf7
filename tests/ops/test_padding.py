"""csrc/aten/padding.cpp and upsample.cpp against CPU: what resample.cpp is for."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from harness import check_call, check_errors, check_sample, ops, pairs, samples

PADS = ops("nn.functional.pad", "constant_pad_nd")
RESIZES = ops(
    "nn.functional.interpolate",
    "nn.functional.upsample_bilinear",
    "nn.functional.upsample_nearest",
    "_upsample_bilinear2d_aa",
)
OPS = PADS + RESIZES


@pytest.mark.parametrize("op, dtype", pairs(OPS))
def test_values(op, dtype):
    for sample in samples(op, dtype, 6 if dtype == torch.float32 else 2):
        check_sample(op, sample, dtype)


@pytest.mark.parametrize("op", [op for op in OPS if op.error_inputs_func], ids=lambda op: op.name)
def test_errors(op):
    check_errors(op)


def image(*sizes, last=None):
    x = torch.randn(*sizes)
    return (x.to(memory_format=last) if last else x).requires_grad_()


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("last", [None, torch.channels_last])
def test_pad_modes(mode, last):
    x = image(2, 3, 5, 6, last=last)
    check_call(lambda x: F.pad(x, (1, 3, 2, 0), mode=mode), (x,))
    if mode != "circular":
        x = image(2, 3, 4, 5, 6, last=last and torch.channels_last_3d)
        check_call(lambda x: F.pad(x, (1, 3, 2, 0, 1, 1), mode=mode), (x,))


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_crops_and_pads(mode):
    check_call(lambda x: F.pad(x, (-1, 2, 3, -2), mode=mode), (image(2, 3, 5, 6),))
    check_call(lambda x: F.pad(x, (2, -1), mode=mode), (image(2, 3, 5),))
    check_call(lambda x: F.pad(x, (1, 2, 1, 0, 2, 1), mode=mode), (image(2, 3, 4, 3, 4),))


def test_pad_value_is_data():
    import torch_xla
    import torch_xla.debug.metrics as met

    x = torch.rand(3, 3, device="xla")
    torch_xla.sync()

    def step(value):
        y = F.pad(x, (1, 1), value=value)
        torch_xla.sync()
        return y.cpu()[0, 0].item()

    assert step(2.5) == 2.5
    before = met.metric_data("CompileTime")[0]
    assert step(3.5) == 3.5
    assert met.metric_data("CompileTime")[0] == before


MODES = {
    3: ["nearest", "linear", "nearest-exact", "area"],
    4: ["nearest", "bilinear", "bicubic", "nearest-exact", "area"],
    5: ["nearest", "trilinear", "nearest-exact", "area"],
}


@pytest.mark.parametrize("rank, mode", [(rank, mode) for rank in MODES for mode in MODES[rank]])
def test_resize(rank, mode):
    x = image(2, 3, *(5, 6, 4)[: rank - 2])
    for size in (7, 3, 10, 1):
        check_call(lambda x, size=size: F.interpolate(x, size=size, mode=mode), (x,))
    for scale in (2, 1.7, 0.5, 0.3):
        check_call(lambda x, scale=scale: F.interpolate(x, scale_factor=scale, mode=mode), (x,))
    if "linear" in mode or "cubic" in mode:
        check_call(lambda x: F.interpolate(x, size=7, mode=mode, align_corners=True), (x,))


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(3, 2), (11, 13), (4, 17)])
def test_antialias(mode, size):
    x = image(1, 2, 9, 8)
    check_call(lambda x: F.interpolate(x, size=size, mode=mode, antialias=True), (x,))


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_resize_keeps_layout(mode):
    x = image(2, 3, 5, 6, last=torch.channels_last)
    check_call(lambda x: F.interpolate(x, scale_factor=2, mode=mode), (x,))


@pytest.mark.parametrize("channels", [1, 3, 5])
@pytest.mark.parametrize("last", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_bytes_are_those_of_cpu(mode, last, channels):
    """To the last bit: CPU interpolates bytes with whole weights, rounding after each dimension.

    Sizes of one column are left out: CPU's separable kernel reads others' elements there, in one
    layout and not in the other (so says CPU itself, for one channel and for five).
    """
    torch.manual_seed(0)
    x = torch.randint(0, 256, (2, channels, 9, 7), dtype=torch.uint8).to(memory_format=last)
    for size in ((13, 11), (4, 3), (9, 20), (1, 7), (40, 2)):
        for choice in ({}, {"align_corners": True}, {"antialias": True}):
            check_call(lambda x, s=size, c=choice: F.interpolate(x, s, mode=mode, **c), (x,))
    check_call(lambda x: F.interpolate(x, scale_factor=1.7, mode=mode), (x,))


@pytest.mark.parametrize("rank, mode", [(3, "linear"), (5, "trilinear")])
def test_bytes_of_other_ranks_are_refused(rank, mode):
    x = torch.zeros((1,) * rank, dtype=torch.uint8, device="xla")
    with pytest.raises(NotImplementedError, match="not implemented for 'Byte'"):
        F.interpolate(x, scale_factor=2, mode=mode)


def test_scale_factor_and_half_pixels():
    x = image(1, 1, 5, 5)
    for recompute in (None, True):
        check_call(
            lambda x, recompute=recompute: F.interpolate(
                x, scale_factor=1.3, mode="bilinear", recompute_scale_factor=recompute
            ),
            (x,),
        )
