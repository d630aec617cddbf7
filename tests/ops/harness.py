"""Compares operators on xla with stock PyTorch on CPU, over PyTorch's own `op_db` of samples.

A test file names the operators of its family and is done:

    OPS = ops("sum", "mean", "nn.functional.softmax")

    @pytest.mark.parametrize("op, dtype", pairs(OPS, FLOAT_FIRST))
    def test_values(op, dtype):
        for sample in samples(op, dtype):
            check_sample(op, sample, dtype)

`check_sample` looks at values, dtypes, sizes, strides and devices of results and gradients, and
fails when an operator left the device; `check_variants` at in-place and out= forms; `check_errors`
at the errors for bad input.
"""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Callable, Iterable, Iterator

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_leaves, tree_map

import torch_xla
import torch_xla.debug.metrics as met

DEVICE = torch_xla.device()

# The dtypes to test by default: the usual one, then those with rules of their own.
FLOAT_FIRST = (
    torch.float32,
    torch.bfloat16,
    torch.float16,
    torch.float64,
    torch.int64,
    torch.bool,
)

# rtol and atol by dtype; atol is scaled by the largest magnitude of the expected result.
TOLERANCE = {
    torch.float64: (1e-7, 1e-7),
    torch.float32: (1e-4, 1e-4),
    torch.complex64: (1e-4, 1e-4),
    torch.complex128: (1e-7, 1e-7),
    torch.float16: (2e-3, 2e-3),
    torch.bfloat16: (1.6e-2, 1.6e-2),
}


def ops(*names: str) -> list[OpInfo]:
    """The `op_db` entries of these names, all variants, in this order.

    Raises LookupError for a name that the database does not have.
    """
    found = []
    for name in names:
        entries = [op for op in op_db if op.name == name]
        if not entries:
            raise LookupError(f"op_db has no operator named {name!r}")
        found += entries
    return found


def pairs(entries: Iterable[OpInfo], dtypes: Iterable[torch.dtype] = FLOAT_FIRST) -> list:
    """pytest parameters (op, dtype) for every dtype in `dtypes` that an op supports on CPU."""
    dtypes = list(dtypes)
    return [
        pytest.param(op, dtype, id=f"{op.formatted_name}-{str(dtype).removeprefix('torch.')}")
        for op in entries
        for dtype in dtypes
        if dtype in op.supported_dtypes("cpu")
    ]


def samples(op: OpInfo, dtype: torch.dtype, limit: int = 4) -> list[SampleInput]:
    """At most `limit` samples of `op`, spread evenly over the first hundred, on CPU.

    Tensors require gradients where `op` can differentiate `dtype`.
    """
    torch.manual_seed(0)
    grad = differentiable(op, dtype)
    every = list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=grad), 100))
    if len(every) <= limit:
        return every
    return [every[i * len(every) // limit] for i in range(limit)]


def differentiable(op: OpInfo, dtype: torch.dtype) -> bool:
    """Whether `op` has a gradient for inputs of `dtype` on CPU."""
    return op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")


# --- Copies of arguments --------------------------------------------------------------------------


def copy_to(tree, device: torch.device | str):
    """A copy of every tensor in `tree` on `device`: same sizes, strides and requires_grad."""

    def copy(leaf):
        if isinstance(leaf, torch.device):
            return torch.device(device) if leaf.type == "cpu" else leaf
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return _copy_tensor(leaf.detach(), device).requires_grad_(leaf.requires_grad)

    return tree_map(copy, tree)


def _copy_tensor(tensor: torch.Tensor, device: torch.device | str) -> torch.Tensor:
    plain = tensor.clone().to(device)
    if tensor.layout != torch.strided:
        return plain
    size = tensor.numel() * tensor.element_size()
    if plain.stride() == tensor.stride() and tensor.untyped_storage().nbytes() == size:
        return plain
    # Gaps, overlaps or elements beside it: the whole storage, then the same view of it.
    whole = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
    return (
        whole.clone().to(device).as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())
    )


def _arguments(sample: SampleInput, device) -> tuple[tuple, dict]:
    args = (copy_to(sample.input, device), *copy_to(sample.args, device))
    kwargs = copy_to(sample.kwargs, device)
    if isinstance(kwargs.get("device"), str):
        kwargs["device"] = device
    return args, kwargs


# --- Comparison -----------------------------------------------------------------------------------


def significant_strides(tensor: torch.Tensor) -> list[int] | None:
    """Strides of the dimensions in which an element has a neighbour; None without elements."""
    if tensor.layout != torch.strided or tensor.numel() == 0:
        return None
    return [s for n, s in zip(tensor.size(), tensor.stride(), strict=True) if n > 1]


def check_equal(
    expected,
    got,
    *,
    dtype: torch.dtype | None = None,
    strides: bool = True,
    values: bool = True,
    device: str = "xla",
) -> None:
    """Asserts that `got`, a tree with tensors on `device`, says what `expected` says on CPU.

    `dtype` is what the computation ran in, when results are wider than it: its tolerance counts.
    """
    want_leaves, got_leaves = tree_leaves(expected), tree_leaves(got)
    assert len(want_leaves) == len(got_leaves), f"{expected} and {got} differ in structure"
    for want, have in zip(want_leaves, got_leaves, strict=True):
        if not isinstance(want, torch.Tensor):
            same = want == have or (want != want and have != have)
            assert same, f"expected {want}, got {have}"
            continue
        assert have.device.type == device, f"the result is on {have.device}"
        assert have.dtype == want.dtype, f"dtype: expected {want.dtype}, got {have.dtype}"
        assert have.size() == want.size(), f"sizes: expected {want.size()}, got {have.size()}"
        if strides:
            want_strides, have_strides = significant_strides(want), significant_strides(have)
            assert have_strides == want_strides, (
                f"strides of {list(want.size())}: expected {want.stride()}, got {have.stride()}"
            )
        if values:
            rtol, atol = _tolerance(_numbers(want), dtype)
            have, want = have.detach().cpu(), want.detach()
            if (
                want.is_complex()
                and want.layout == torch.strided
                and _close_by_parts(have, want, rtol, atol)
            ):
                continue
            torch.testing.assert_close(have, want, rtol=rtol, atol=atol, equal_nan=True)


def _close_by_parts(have: torch.Tensor, want: torch.Tensor, rtol: float, atol: float) -> bool:
    # As complex numbers inf + 0.1j and inf + 0.1000001j are not close: their difference is NaN.
    parts = (torch.view_as_real(number.resolve_conj()) for number in (have, want))
    return torch.allclose(*parts, rtol=rtol, atol=atol, equal_nan=True)


def _numbers(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    if tensor.layout == torch.strided:
        return tensor
    return tensor.coalesce().values() if tensor.layout == torch.sparse_coo else tensor.values()


def _tolerance(want: torch.Tensor, computed_in: torch.dtype | None) -> tuple[float, float]:
    if not (want.is_floating_point() or want.is_complex()):
        return 0.0, 0.0
    rtol, atol = (
        max(pair)
        for pair in zip(
            TOLERANCE.get(want.dtype, (1e-4, 1e-4)),
            TOLERANCE.get(computed_in, (0.0, 0.0)),
            strict=True,
        )
    )
    finite = want.abs().double()
    finite = finite[finite.isfinite()]
    scale = finite.max().item() if finite.numel() else 1.0
    return rtol, atol * max(1.0, scale)


def fallbacks() -> list[str]:
    """Names of the operators that ran on the host since the counters were cleared."""
    return list(met.executed_fallback_ops())


# --- Checks ---------------------------------------------------------------------------------------


def check_call(
    function: Callable,
    args: tuple,
    kwargs: dict | None = None,
    *,
    dtype: torch.dtype | None = None,
    grad: bool = True,
    native: bool = True,
    values: bool = True,
    strides: bool = True,
    output_process: Callable | None = None,
) -> None:
    """Runs `function` on CPU and on xla and compares results, and gradients of what requires them.

    `native`: no operator may run on the host. `output_process` maps results to what is
    differentiated and compared, for results that are not unique (signs of eigenvectors).
    """
    kwargs = kwargs or {}
    process = output_process or (lambda result: result)
    met.clear_counters()
    runs = {}
    for device in ("cpu", DEVICE):
        own_args, own_kwargs = copy_to(args, device), copy_to(kwargs, device)
        torch.manual_seed(0)
        result = process(function(*own_args, **own_kwargs))
        runs[device] = (result, _gradients(result, (own_args, own_kwargs)) if grad else None)
    torch_xla.sync()
    left = fallbacks()
    (expected, expected_grads), (got, got_grads) = runs["cpu"], runs[DEVICE]
    # A plain number where CPU gives one too; tensors must be on the device.
    check_equal(expected, got, dtype=dtype, values=values, strides=strides)
    check_equal(expected_grads, got_grads, dtype=dtype, values=values, strides=False)
    assert not (native and left), f"ran on the host: {left}"


def _gradients(result, arguments) -> list[torch.Tensor | None] | None:
    def wanted(tree) -> list[torch.Tensor]:
        return [
            leaf
            for leaf in tree_leaves(tree)
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad
        ]

    outputs, inputs = wanted(result), wanted(arguments)
    if not outputs or not inputs:
        return None
    generator = torch.Generator().manual_seed(1)
    cotangents = [
        torch.randn(out.size(), generator=generator, dtype=torch.float64)
        .to(out.dtype)
        .to(out.device)
        for out in outputs
    ]
    return list(torch.autograd.grad(outputs, inputs, cotangents, allow_unused=True))


def check_sample(
    op: OpInfo,
    sample: SampleInput,
    dtype: torch.dtype,
    *,
    native: bool = True,
    grad: bool = True,
    values: bool = True,
    strides: bool = True,
) -> None:
    """Forward and, where `op` has one, backward of a sample of `op_db` against CPU (`check_call`).

    Does nothing when the CPU itself refuses the sample.
    """
    args, kwargs = _arguments(sample, "cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            op(*copy_to(args, "cpu"), **copy_to(kwargs, "cpu"))
        except (RuntimeError, NotImplementedError):
            return
        check_call(
            op.op,
            args,
            kwargs,
            dtype=dtype,
            grad=grad and differentiable(op, dtype),
            native=native,
            values=values,
            strides=strides,
            output_process=sample.output_process_fn_grad,
        )


def check_variants(op: OpInfo, sample: SampleInput, dtype: torch.dtype) -> None:
    """The in-place form and out= (a filled tensor of the right size, and an empty one)."""
    for call in _variants(op, sample):
        try:
            expected = call("cpu")
        except (RuntimeError, TypeError):
            with pytest.raises((RuntimeError, TypeError)):
                call(DEVICE)
            continue
        check_equal(expected, call(DEVICE), dtype=dtype)


def _variants(op: OpInfo, sample: SampleInput) -> Iterator[Callable]:
    def inplace(device):
        args, kwargs = _arguments(sample, device)
        with torch.no_grad():
            result = op.inplace_variant(*args, **kwargs)
        assert result is args[0], "an in-place operator must return its input"
        return args[0]

    def out(device, empty: bool):
        args, kwargs = _arguments(sample, device)
        with torch.no_grad():
            result = op(*args, **kwargs)

            def blank(t):
                return t.new_empty(0) if empty else torch.full_like(t, 1)

            target = tree_map(blank, result)
            if isinstance(target, tuple):
                target = tuple(target)
            op(*args, out=target, **kwargs)
        return target

    if op.inplace_variant is not None:
        yield inplace
    if op.supports_out:
        yield lambda device: out(device, empty=False)
        yield lambda device: out(device, empty=True)


def check_errors(op: OpInfo, limit: int = 1000, by_value: str | None = None) -> None:
    """Bad input raises, at the call, the type of exception that the CPU raises.

    `by_value` is a regular expression of messages about values in tensors, which are not known at
    the call: those are passed over.
    """
    for i, error in enumerate(op.error_inputs("cpu")):
        if i >= limit:
            return
        sample = error.sample_input
        messages = []
        for device in ("cpu", DEVICE):
            args, kwargs = _arguments(sample, device)
            try:
                op(*args, **kwargs)
            except Exception as exception:
                messages.append(exception)
            else:
                messages.append(None)
        expected, got = messages
        if expected is None or (by_value and re.search(by_value, str(expected))):
            continue
        assert got is not None, f"{op.name} should have raised {expected!r}"
        assert type(got) is type(expected), f"expected {expected!r}, got {got!r}"
