"""Every operator of PyTorch's `op_db` against CPU, one test for each entry, dtype and variant.

The default run takes a sample of the cases; `TORCH_XLA_TEST_DB=full` takes all (`selection.py`).
What is left out, and why, is in `exceptions.py`.
"""

from __future__ import annotations

import fnmatch

import pytest
import torch
from exceptions import ABOUT_VALUES, DIFFERS_BY_STRIDE, LESS_ACCURATE
from harness import DEVICE, differentiable
from runs import (
    Run,
    arguments,
    compare,
    cotangents,
    describe,
    has_values,
    spread,
    wanted,
)
from selection import SAMPLE_OF, take
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import noncontiguous_like
from torch.testing._internal.opinfo.core import (
    BinaryUfuncInfo,
    OpInfo,
    ReductionOpInfo,
    SampleInput,
    UnaryUfuncInfo,
)
from torch.utils._pytree import tree_map

DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.complex64,
    torch.int8,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.bool,
)
# Double backward is compared where rounding does not hide what is compared.
TWICE = (torch.float64, torch.complex64)


def cases(
    variant: str,
    wants=lambda op: True,
    dtypes=DTYPES,
    supported=None,
    sample_of: int = SAMPLE_OF,
) -> list:
    supported = supported or (lambda op: op.supported_dtypes("cpu"))
    return take(
        variant,
        [
            (op, op.formatted_name, dtype)
            for op in op_db
            if wants(op)
            for dtype in dtypes
            if dtype in supported(op)
        ],
        sample_of,
    )


def samples(op: OpInfo, dtype: torch.dtype, limit: int, *, grad: bool = False) -> list[SampleInput]:
    torch.manual_seed(0)
    return spread(op.sample_inputs("cpu", dtype, requires_grad=grad), limit)


def forward(op: OpInfo, function, sample: SampleInput) -> Run:
    def call(device):
        args, kwargs = arguments(op, sample, device)
        with torch.no_grad():
            return sample.output_process_fn_grad(function(*args, **kwargs))

    return Run(call, describe(sample), values=has_values(op, sample))


def accuracy_of(op: OpInfo, dtype: torch.dtype) -> torch.dtype:
    """The dtype whose tolerance a comparison has: `dtype`, but for a few entries."""
    for pattern, name, other, _ in LESS_ACCURATE:
        if fnmatch.fnmatchcase(op.formatted_name, pattern) and dtype == getattr(torch, name):
            return getattr(torch, other)
    return dtype


def transposed(tree):
    """The same numbers, laid out with the last dimension first."""

    def lay(leaf):
        if not isinstance(leaf, torch.Tensor) or leaf.layout != torch.strided or leaf.dim() < 2:
            return leaf
        grad = leaf.requires_grad
        turned = leaf.detach().movedim(-1, 0).contiguous().movedim(0, -1)
        return turned.requires_grad_(grad)

    return tree_map(lay, tree)


# --- Values, dtypes, sizes and strides ---


@pytest.mark.parametrize("op, dtype", cases("forward"))
def test_forward(op, dtype):
    compare(
        [forward(op, op.op, sample) for sample in samples(op, dtype, 8)], accuracy_of(op, dtype)
    )


@pytest.mark.parametrize("op, dtype", cases("method", lambda op: op.method_variant is not None))
def test_method(op, dtype):
    compare(
        [forward(op, op.method_variant, sample) for sample in samples(op, dtype, 2)],
        accuracy_of(op, dtype),
    )


def with_gaps(tree):
    """The same numbers, where no two are neighbours."""

    def lay(leaf):
        strided = isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided
        return noncontiguous_like(leaf) if strided else leaf

    return tree_map(lay, tree)


@pytest.mark.parametrize("op, dtype", cases("noncontiguous"))
def test_noncontiguous(op, dtype):
    runs = []
    for sample in samples(op, dtype, 3):
        for lay in (with_gaps, transposed):
            runs.append(forward(op, op.op, sample.transform(lay)))
    compare(runs, accuracy_of(op, dtype))


# Extremal values, infinities, NaN, ties, many shapes: what PyTorch compares with NumPy.
@pytest.mark.parametrize(
    "op, dtype",
    cases(
        "reference",
        lambda op: isinstance(op, (UnaryUfuncInfo, BinaryUfuncInfo, ReductionOpInfo)),
    ),
)
def test_reference(op, dtype):
    torch.manual_seed(0)
    chosen = spread(op.reference_inputs("cpu", dtype), 16, 400)
    runs = [forward(op, op.op, sample) for sample in chosen]
    if (op.name, str(dtype).removeprefix("torch.")) in DIFFERS_BY_STRIDE:
        for sample, run in zip(chosen, runs, strict=True):
            tensors = [t for t in (sample.input, *sample.args) if isinstance(t, torch.Tensor)]
            run.values = run.values and all(t.is_contiguous() for t in tensors)
    compare(runs, accuracy_of(op, dtype))


# --- In-place and out= ---


@pytest.mark.parametrize(
    "op, dtype", cases("inplace", lambda op: op.inplace_variant is not None, sample_of=60)
)
def test_inplace(op, dtype):
    def run(sample):
        def call(device):
            args, kwargs = arguments(op, sample, device)
            with torch.no_grad():
                result = op.inplace_variant(*args, **kwargs)
            assert result is args[0], "an in-place operator returns its input"
            return args[0]

        return Run(call, describe(sample), values=has_values(op, sample))

    compare([run(sample) for sample in samples(op, dtype, 3)], accuracy_of(op, dtype))


@pytest.mark.parametrize("op, dtype", cases("out", lambda op: op.supports_out))
def test_out(op, dtype):
    def run(sample, blank):
        def call(device):
            args, kwargs = arguments(op, sample, device)
            with torch.no_grad():
                target = tree_map(blank, op(*args, **kwargs))
                target = tuple(target) if isinstance(target, tuple) else target
                op(*args, out=target, **kwargs)
            return target

        return Run(call, describe(sample), values=has_values(op, sample))

    blanks = (
        lambda t: torch.full_like(t, 1),
        lambda t: t.new_empty(0),
        lambda t: torch.full_like(t.expand(2, *t.size()), 1).movedim(0, -1)[..., 1],
    )
    compare(
        [run(s, blank) for s in samples(op, dtype, 2) for blank in blanks], accuracy_of(op, dtype)
    )


# --- Gradients ---


def differentiable_dtypes(op: OpInfo):
    return op.supported_backward_dtypes("cpu") if op.supports_autograd else ()


def graph_of(op: OpInfo, sample, device):
    """What a gradient goes from, and to; either may be empty."""
    args, kwargs = arguments(op, sample, device)
    return wanted(sample.output_process_fn_grad(op.op(*args, **kwargs))), wanted((args, kwargs))


@pytest.mark.parametrize("op, dtype", cases("backward", supported=differentiable_dtypes))
def test_backward(op, dtype):
    def run(sample):
        def call(device):
            outputs, inputs = graph_of(op, sample, device)
            if not outputs or not inputs:
                return []
            return torch.autograd.grad(outputs, inputs, cotangents(outputs), allow_unused=True)

        return Run(call, describe(sample), values=has_values(op, sample), strides=False)

    assert differentiable(op, dtype)
    compare([run(sample) for sample in samples(op, dtype, 5, grad=True)], accuracy_of(op, dtype))


@pytest.mark.parametrize(
    "op, dtype",
    cases(
        "double_backward",
        lambda op: op.supports_gradgrad,
        TWICE,
        supported=differentiable_dtypes,
    ),
)
def test_double_backward(op, dtype):
    def run(sample):
        def call(device):
            outputs, inputs = graph_of(op, sample, device)
            if not outputs or not inputs:
                return []
            given = cotangents(outputs, requires_grad=True)
            first = torch.autograd.grad(
                outputs, inputs, given, allow_unused=True, create_graph=True
            )
            again = wanted(first)
            if not again:
                return []
            return torch.autograd.grad(
                again, [*inputs, *given], cotangents(again), allow_unused=True
            )

        return Run(call, describe(sample), values=has_values(op, sample), strides=False)

    compare([run(sample) for sample in samples(op, dtype, 3, grad=True)], accuracy_of(op, dtype))


# --- Errors ---


def raised(op: OpInfo, sample: SampleInput, device) -> Exception | None:
    try:
        args, kwargs = arguments(op, sample, device)
        result = op(*args, **kwargs)
        if op.name in ABOUT_VALUES:
            result.cpu()
    except Exception as error:
        error.__traceback__ = None
        return error
    return None


@pytest.mark.parametrize(
    "op, dtype",
    take(
        "errors",
        [(op, op.formatted_name, None) for op in op_db if op.error_inputs_func is not None],
        sample_of=8,
    ),
)
def test_errors(op, dtype):
    """What CPU refuses is refused with the same type of exception: at the call, but for numbers on
    the device that only the program sees."""
    problems = []
    for error_input in op.error_inputs("cpu"):
        sample = error_input.sample_input
        expected, got = (raised(op, sample, device) for device in ("cpu", DEVICE))
        if expected is None:
            continue
        if type(got) is not type(expected):
            problems.append(f"{describe(sample)}\n  expected {expected!r}\n  got {got!r}")
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)
