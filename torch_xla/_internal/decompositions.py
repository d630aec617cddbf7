"""Decompositions of operators that torch decomposes nowhere: steps of quantization-aware training,
forward-mode derivatives, CPU's own algorithms of convolution and attention, some out= forms.

Each takes and gives what the operator's schema says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

Tensor = torch.Tensor
aten = torch.ops.aten

TABLE: dict[str, Callable[..., Any]] = {}


def _of(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            TABLE[f"aten::{name}"] = function
        return function

    return add


def _into(targets: Sequence[Tensor], results: Sequence[Tensor]) -> Any:
    """What an out= form does with its results."""
    for target, result in zip(targets, results, strict=True):
        if target.shape != result.shape:
            target.resize_(result.shape)
        target.copy_(result)
    return targets[0] if len(targets) == 1 else tuple(targets)


# --- Fake quantization: (clamp(round(x / scale) + zero_point) - zero_point) * scale ---


def _fake_quantize(x: Tensor, scale: Any, zero_point: Any, low: int, high: int) -> Any:
    number = torch.round(x * (1.0 / scale)) + zero_point
    mask = (number >= low) & (number <= high)
    return ((number.clamp(low, high) - zero_point) * scale).to(x.dtype), mask


def _check_ends(low: int, high: int) -> None:
    if low > high:  # PyTorch's words, gap and all
        raise RuntimeError("`quant_min` should be less than or         equal to `quant_max`.")


@_of("fake_quantize_per_tensor_affine_cachemask")
def _per_tensor(x: Tensor, scale: float, zero_point: int, low: int, high: int) -> Any:
    _check_ends(low, high)
    if not low <= zero_point <= high:
        raise RuntimeError("`zero_point` must be between `quant_min` and `quant_max`.")
    return _fake_quantize(x, scale, zero_point, low, high)


@_of("_fake_quantize_per_tensor_affine_cachemask_tensor_qparams")
def _per_tensor_of_tensors(
    x: Tensor, scale: Tensor, zero_point: Tensor, enabled: Tensor, low: int, high: int
) -> Any:
    result, mask = _fake_quantize(x, scale, zero_point, low, high)
    on = enabled != 0
    return torch.where(on, result, x), mask | ~on


@_of("fake_quantize_per_channel_affine_cachemask")
def _per_channel(
    x: Tensor, scale: Tensor, zero_point: Tensor, axis: int, low: int, high: int
) -> Any:
    if zero_point.dtype not in (torch.int32, torch.float32, torch.float16):
        found = str(torch.empty(0, dtype=zero_point.dtype).type()).split(".")[1][: -len("Tensor")]
        raise RuntimeError(f"Zero-point must be Int32, Float or Half, found {found}")
    if scale.dim() != 1 or zero_point.dim() != 1 or scale.numel() != zero_point.numel():
        raise RuntimeError("scale and zero-point need to be vectors of one size")
    if scale.numel() != x.size(axis):
        raise RuntimeError(
            "dimensions of scale and zero-point are not consistent with input tensor"
        )
    _check_ends(low, high)
    return _fake_quantize(x, _along(x, scale, axis), _along(x, zero_point, axis), low, high)


# The same with a scale and a zero point that are learned (Esser et al. 2020, "Learned Step Size
# Quantization"); the zero point is rounded on its way, halves not alike.


def _along(x: Tensor, parameter: Tensor, axis: int) -> Tensor:
    shape = [1] * x.dim()
    shape[axis] = -1
    return parameter.reshape(shape)


@_of("_fake_quantize_learnable_per_tensor_affine")
def _learnable_per_tensor(
    x: Tensor, scale: Tensor, zero_point: Tensor, low: int, high: int, grad_factor: float = 1.0
) -> Tensor:
    zero = zero_point[0].float().round().clamp(low, high)
    return _fake_quantize(x, scale[0].float(), zero, low, high)[0]


@_of("_fake_quantize_learnable_per_channel_affine")
def _learnable_per_channel(
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    axis: int,
    low: int,
    high: int,
    grad_factor: float = 1.0,
) -> Tensor:
    zero = zero_point.round().clamp(low, high)
    return _fake_quantize(x, _along(x, scale, axis), _along(x, zero, axis), low, high)[0]


def _learnable_gradients(
    grad: Tensor, x: Tensor, scale: Tensor, zero: Tensor, low: int, high: int, factor: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, and of scale and zero point for each element."""
    number = torch.round(x * (1.0 / scale)) + zero
    inside = (number >= low) & (number <= high)
    quantized = (number.clamp(low, high) - zero) * scale
    edge = torch.where(number < low, low - zero, high - zero)
    dscale = grad * torch.where(inside, (quantized - x) / scale, edge) * factor
    dzero = torch.where(inside, 0.0, -grad * scale * factor)
    return inside * grad, dscale, dzero


@_of("_fake_quantize_learnable_per_tensor_affine_backward")
def _learnable_per_tensor_backward(
    grad: Tensor,
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    low: int,
    high: int,
    grad_factor: float = 1.0,
) -> Any:
    zero = (zero_point[0].float() + 0.5).clamp(low, high).trunc()
    dx, dscale, dzero = _learnable_gradients(
        grad, x, scale[0].float(), zero, low, high, grad_factor
    )
    return dx, dscale.sum().unsqueeze(0), dzero.sum().unsqueeze(0)


@_of("_fake_quantize_learnable_per_channel_affine_backward")
def _learnable_per_channel_backward(
    grad: Tensor,
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    axis: int,
    low: int,
    high: int,
    grad_factor: float = 1.0,
) -> Any:
    zero = zero_point.round().clamp(low, high)
    dx, dscale, dzero = _learnable_gradients(
        grad, x, _along(x, scale, axis), _along(x, zero, axis), low, high, grad_factor
    )
    others = [i for i in range(x.dim()) if i != axis % x.dim()]
    return dx, dscale.sum(others), dzero.sum(others)  # of a vector: all, as on CPU


# --- Forward-mode derivatives of glu(x) = a sigmoid(b) ---


@_of("glu_jvp")
def _glu_jvp(glu: Tensor, x: Tensor, dx: Tensor, dim: int) -> Tensor:
    sigmoid = x.chunk(2, dim)[1].sigmoid()
    da, db = dx.chunk(2, dim)
    return da * sigmoid + glu * (1 - sigmoid) * db


@_of("glu_backward_jvp")
def _glu_backward_jvp(
    grad_x: Tensor, grad_glu: Tensor, x: Tensor, dgrad_glu: Tensor, dx: Tensor, dim: int
) -> Tensor:
    a, b = x.chunk(2, dim)
    da, db = dx.chunk(2, dim)
    sigmoid = b.sigmoid()
    rest = 1 - sigmoid
    dsigmoid = sigmoid * rest * db
    to_a = grad_glu * sigmoid
    dto_a = dgrad_glu * sigmoid + grad_glu * dsigmoid
    dto_b = dto_a * rest * a - to_a * dsigmoid * a + to_a * rest * da
    return torch.cat([dto_a, dto_b], dim)


# --- Convolutions under the names of CPU's algorithms ---


def _convolution(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any = 1
) -> Tensor:
    dims = weight.dim() - 2
    dilation = [dilation] * dims if isinstance(dilation, int) else dilation
    return aten.convolution(x, weight, bias, stride, padding, dilation, False, [0] * dims, 1)


@_of("_slow_conv2d_forward", "slow_conv3d_forward")
def _slow_forward(
    x: Tensor, weight: Tensor, kernel_size: Any, bias: Tensor | None, stride: Any, padding: Any
) -> Tensor:
    return _convolution(x, weight, bias, stride, padding)


@_of("_slow_conv2d_forward.output", "slow_conv3d_forward.output")
def _slow_forward_out(
    x: Tensor,
    weight: Tensor,
    kernel_size: Any,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    *,
    output: Tensor,
) -> Tensor:
    return _into([output], [_convolution(x, weight, bias, stride, padding)])


@_of("slow_conv_dilated2d", "slow_conv_dilated3d")
def _slow_dilated(
    x: Tensor,
    weight: Tensor,
    kernel_size: Any,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
) -> Tensor:
    return _convolution(x, weight, bias, stride, padding, dilation)


def _transposed(
    x: Tensor,
    weight: Tensor,
    kernel_size: Any,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    dilation: Any = 1,
) -> Tensor:
    return aten.convolution(x, weight, bias, stride, padding, dilation, True, output_padding, 1)


TABLE["aten::slow_conv_transpose3d"] = _transposed


@_of("slow_conv_transpose3d.out")
def _transposed_out(*args: Any, out: Tensor) -> Tensor:
    return _into([out], [_transposed(*args)])


@_of("_slow_conv2d_backward.output_mask")
def _slow_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    output_mask: list[bool],
) -> Any:
    bias_sizes = [weight.size(0)] if output_mask[2] else None
    return aten.convolution_backward(
        grad, x, weight, bias_sizes, stride, padding, [1, 1], False, [0, 0], 1, output_mask
    )


@_of("_slow_conv2d_backward.grad_input")
def _slow_backward_out(
    *args: Any, grad_input: Tensor, grad_weight: Tensor, grad_bias: Tensor
) -> Tensor:
    targets = [grad_input, grad_weight, grad_bias]
    wanted = [target is not None for target in targets]
    results = _slow_backward(*args, wanted)
    pairs = [(a, b) for a, b, want in zip(targets, results, wanted, strict=True) if want]
    _into([a for a, _ in pairs], [b for _, b in pairs])
    return tuple(targets)


# --- Steps of CPU's attention and of normalizations over several devices ---


@_of("_masked_softmax")
def _masked_softmax(
    x: Tensor, mask: Tensor, dim: int | None = None, mask_type: int | None = None
) -> Tensor:
    """The mask says what is left out. Type 0: [L, L], of a source; 1: [B, L], of padding of an x of
    [B, heads, L, L]; 2: of x's sizes. Where all is left out there is NaN."""
    if mask.dtype != torch.bool:
        raise RuntimeError("Mask should be a boolean tensor")
    if mask_type == 1:
        mask = mask.view(mask.size(0), 1, 1, mask.size(1))
    mask = mask.expand(x.shape)
    dim = x.dim() - 1 if dim is None else dim
    return x.masked_fill(mask, float("-inf")).softmax(dim)


@_of("_masked_softmax_backward")
def _masked_softmax_backward(
    grad: Tensor, output: Tensor, mask: Tensor, dim: int | None = None
) -> Tensor:
    dim = output.dim() - 1 if dim is None else dim
    mask = mask.expand(grad.shape)
    inner = (grad * output).masked_fill(mask, 0.0).sum(dim, keepdim=True)
    return (output * (grad - inner)).masked_fill(mask, 0.0)


@_of("_transform_bias_rescale_qkv")
def _transform_bias_rescale_qkv(qkv: Tensor, bias: Tensor, heads: int) -> Any:
    batch, length, three = qkv.shape
    size = three // 3 // heads
    parts = (qkv + bias).view(batch, length, 3, heads, size).permute(2, 0, 3, 1, 4)
    query, key, value = (part.contiguous() for part in parts)
    return query / size**0.5, key, value


@_of("batch_norm_update_stats")
def _batch_norm_update_stats(
    x: Tensor, running_mean: Tensor | None, running_var: Tensor | None, momentum: float
) -> Any:
    if x.numel() == 0:
        raise RuntimeError(
            f"input tensor must have at least one element, but got input_sizes = {list(x.shape)}"
        )
    dims = [0, *range(2, x.dim())]
    count = x.numel() // x.size(1)
    mean, var = x.mean(dims), x.var(dims, correction=0)
    if running_mean is not None:
        running_mean.mul_(1 - momentum).add_(mean, alpha=momentum)
    if running_var is not None:
        unbiased = count / (count - 1) if count > 1 else float("nan")
        running_var.mul_(1 - momentum).add_(var * unbiased, alpha=momentum)
    return mean, var


# --- CTC: lengths that are tensors are read, since they decide sizes ---


@_of("_ctc_loss.Tensor")
def _ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, *rest: Any
) -> Any:
    return aten._ctc_loss(
        log_probs, targets, input_lengths.tolist(), target_lengths.tolist(), *rest
    )


@_of("_ctc_loss_backward.Tensor")
def _ctc_loss_backward(
    grad: Tensor,
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    *rest: Any,
) -> Tensor:
    return aten._ctc_loss_backward(
        grad, log_probs, targets, input_lengths.tolist(), target_lengths.tolist(), *rest
    )


# --- Forms of operators with kernels of ours ---


@_of("_add_relu.Scalar")
def _add_relu(x: Tensor, other: Any, alpha: Any = 1) -> Tensor:
    return torch.relu(torch.add(x, other, alpha=alpha))


@_of("_add_relu_.Scalar")
def _add_relu_inplace(x: Tensor, other: Any, alpha: Any = 1) -> Tensor:
    return x.copy_(_add_relu(x, other, alpha))


@_of("_fw_primal_copy", "_make_dual_copy")
def _copy(x: Tensor, *others: Any) -> Tensor:
    return x.clone()


@_of("_aminmax")
def _aminmax(x: Tensor) -> Any:
    return tuple(torch.aminmax(x))


@_of("_aminmax.dim")
def _aminmax_dim(x: Tensor, dim: int, keepdim: bool = False) -> Any:
    return tuple(torch.aminmax(x, dim=dim, keepdim=keepdim))


@_of("_compute_linear_combination")
def _linear_combination(x: Tensor, coefficients: Tensor) -> Tensor:
    return torch.tensordot(coefficients.to(x.dtype), x, dims=1)


@_of("_compute_linear_combination.out")
def _linear_combination_out(x: Tensor, coefficients: Tensor, *, out: Tensor) -> Tensor:
    return _into([out], [_linear_combination(x, coefficients)])


@_of("adaptive_avg_pool3d_backward.grad_input")
def _adaptive_backward_out(grad: Tensor, x: Tensor, *, grad_input: Tensor) -> Tensor:
    return _into([grad_input], [aten._adaptive_avg_pool3d_backward(grad, x)])


@_of("rrelu_with_noise.out")
def _rrelu_out(*args: Any, out: Tensor, **kwargs: Any) -> Tensor:
    return _into([out], [aten.rrelu_with_noise(*args, **kwargs)])


@_of("_native_batch_norm_legit.out")
def _batch_norm_out(*args: Any, out: Tensor, save_mean: Tensor, save_invstd: Tensor) -> Any:
    return _into([out, save_mean, save_invstd], aten._native_batch_norm_legit(*args))


@_of("_batch_norm_with_update.out")
def _batch_norm_update_out(
    *args: Any, out: Tensor, save_mean: Tensor, save_invstd: Tensor, reserve: Tensor
) -> Any:
    return _into([out, save_mean, save_invstd, reserve], aten._batch_norm_with_update(*args))


@_of("range.out")
def _range_out(start: Any, end: Any, step: Any = 1, *, out: Tensor) -> Tensor:
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if (end - start) * step < 0:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    count = int((end - start) / step) + 1
    whole = not out.dtype.is_floating_point and not out.dtype.is_complex
    steps = torch.arange(count, dtype=torch.int64 if whole else torch.float64, device=out.device)
    return _into([out], [start + steps * step])


# --- Counting ---


@_of("histc")
def _histogram_of_integers(x: Tensor, bins: int = 100, least: Any = 0, greatest: Any = 0) -> Any:
    """CPU counts floats only, in a kernel of its own; models for accelerators count integers."""
    if x.dtype.is_floating_point or x.dtype.is_complex or x.dtype == torch.bool or bins <= 0:
        return NotImplemented
    if least > greatest:
        raise RuntimeError("max must be larger than min")
    numbers = x.flatten().long()
    if least == greatest and x.numel():
        low, high = numbers.aminmax()
        single = (low == high).long()
        low, high = low - single, high + single
    else:
        single = least == greatest
        low, high = int(least) - single, int(greatest) + single
    place = torch.div((numbers - low) * bins, high - low, rounding_mode="floor").clamp(max=bins - 1)
    counts = (numbers >= low) & (numbers <= high)
    result = torch.zeros(bins, dtype=x.dtype, device=x.device)
    return result.scatter_add(0, torch.where(counts, place, 0), counts.to(x.dtype))
