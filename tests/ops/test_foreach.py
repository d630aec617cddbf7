"""csrc/aten/foreach.cpp against CPU, over PyTorch's databases of operators on lists."""

from __future__ import annotations

import itertools
import random
import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
from harness import DEVICE, check_call, check_equal, copy_to, fallbacks
from torch.testing._internal.common_methods_invocations import (
    foreach_binary_op_db,
    foreach_other_op_db,
    foreach_pointwise_op_db,
    foreach_reduce_op_db,
    foreach_unary_op_db,
)
from torch.testing._internal.opinfo.core import SampleInput

import torch_xla
import torch_xla.debug.metrics as met

OPS = [
    *foreach_unary_op_db,
    *foreach_binary_op_db,
    *foreach_pointwise_op_db,
    *foreach_reduce_op_db,
    *foreach_other_op_db,
]
DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.complex64)


def has_kernel(op) -> bool:
    """Whether an overload of an operator is ours; the others are torch's own loops."""
    packet = getattr(torch.ops.aten, op.name)
    return any(
        torch._C._dispatch_has_kernel_for_dispatch_key(
            f"aten::{op.name}" + ("" if overload == "default" else f".{overload}"), "XLA"
        )
        for overload in packet.overloads()
    )


PAIRS = [
    pytest.param(op, dtype, id=f"{op.name}-{str(dtype).removeprefix('torch.')}")
    for op in OPS
    for dtype in (DTYPES if has_kernel(op) else DTYPES[:1])
]


def samples(op, dtype: torch.dtype) -> Iterator[SampleInput]:
    """Samples of short lists: tensors, a number, a list of numbers or one tensor beside them.

    Each other one where all that is ours is to leave the list to torch's loop.
    """
    random.seed(0)
    every = op.sample_inputs("cpu", dtype, num_input_tensors=[3])
    yield from itertools.islice(every, 0, None, 1 if dtype.is_floating_point else 2)


def attempt(function: Callable, sample: SampleInput, device) -> object:
    """The result, or for an in-place operator the list that it wrote to; or the error."""
    tensors, args, kwargs = copy_to((sample.input, sample.args, sample.kwargs), device)
    kwargs.pop("disable_fastpath", None)
    try:
        result = function(tensors, *args, **kwargs)
    except Exception as error:
        return error
    return tensors if result is None else result


@pytest.mark.parametrize("op, dtype", PAIRS)
def test_values_and_errors(op, dtype):
    met.clear_counters()
    functions = [function for function in (op.method_variant, op.inplace_variant) if function]
    pairs = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample in samples(op, dtype):
            for function in functions:
                pairs.append([attempt(function, sample, where) for where in ("cpu", DEVICE)])
    torch_xla.sync()  # one program for all
    left = fallbacks()
    for expected, got in pairs:
        if isinstance(expected, Exception):
            assert type(got) is type(expected), f"expected {expected!r}, got {got!r}"
        else:
            assert not isinstance(got, Exception), got
            check_equal(expected, got, dtype=dtype)
    assert not left, f"ran on the host: {left}"


def test_the_hot_ones_have_kernels():
    hot = ("add", "addcdiv", "addcmul", "div", "lerp", "maximum", "mul", "norm", "sqrt", "sub")
    names = {op.name for op in OPS if has_kernel(op)}
    assert {f"_foreach_{name}" for name in hot} <= names


def tensors(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [torch.randn(shape).to(dtype) for shape in shapes]


LISTS = {
    "plain": lambda: (tensors((3, 4), (5,)), tensors((3, 4), (5,))),
    "several dtypes": lambda: (
        [torch.randn(3), torch.randn(3).bfloat16(), torch.randn(3).double(), torch.arange(3)],
        [torch.randn(3), torch.randn(3).bfloat16(), torch.randn(3).double(), torch.arange(3)],
    ),
    "other dtype beside it": lambda: (tensors((3,)), [torch.randn(3).bfloat16()]),
    "broadcast": lambda: (tensors((3, 4), (5,)), tensors((4,), ())),
    "channels last": lambda: tuple(
        [torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)] for _ in range(2)
    ),
    "transposed": lambda: ([torch.randn(3, 4).t()], [torch.randn(4, 3)]),
    "with gaps": lambda: ([torch.randn(3, 4)[:, :2]], [torch.randn(3, 2)]),
    "expanded": lambda: (tensors((3, 4)), [torch.randn(4).expand(3, 4)]),
    "no elements": lambda: (tensors((0, 3), (2,)), tensors((0, 3), (2,))),
}


@pytest.mark.parametrize("name", LISTS)
def test_geometry(name):
    first, second = LISTS[name]()
    for function, args in (
        (torch._foreach_add, (first, second)),
        (torch._foreach_mul, (first, 0.5)),
        (torch._foreach_div, (first, [2.0] * len(first))),
        (torch._foreach_mul, (first, torch.tensor(0.3))),
        (torch._foreach_mul, (first, torch.tensor(0.3, dtype=torch.float64))),
    ):
        check_call(function, args, grad=False)

    def inplace(first, second):
        torch._foreach_lerp_(first, second, 0.25)
        torch._foreach_add_(first, second, alpha=2)
        return first

    if not any(tensor.dtype == torch.int64 for tensor in first) and name != "other dtype beside it":
        check_call(inplace, (first, second), grad=False)


def test_one_storage():
    """What is written is seen by what is read later, as in a loop."""

    def same_twice(x):
        torch._foreach_mul_([x, x], 2.0)
        return x

    def neighbours(x):
        torch._foreach_add_([x[:2], x[2:]], [x[2:], x[:2]])
        return x

    def one_of_them(x, y):
        torch._foreach_mul_([x, y], x)
        return x, y

    def views(x):
        torch._foreach_addcmul_([x[0], x[1]], [x[1], x[0]], [x[0], x[1]], value=0.5)
        return x

    check_call(same_twice, (torch.randn(3),), grad=False)
    check_call(neighbours, (torch.randn(4),), grad=False)
    check_call(one_of_them, (torch.tensor(2.0), torch.tensor(3.0)), grad=False)
    check_call(views, (torch.randn(2, 3),), grad=False)


def test_gradients():
    a, b, c = ([t.requires_grad_() for t in tensors((3, 4), (5,))] for _ in range(3))
    for function, args in (
        (torch._foreach_add, (a, b)),
        (torch._foreach_mul, (a, b)),
        (torch._foreach_addcmul, (a, b, c, [0.5, 2.0])),
        (torch._foreach_lerp, (a, b, 0.25)),
        (torch._foreach_sqrt, ([t.detach().abs().add(1).requires_grad_() for t in a],)),
        (torch._foreach_norm, (a,)),
    ):
        check_call(function, args)


def test_errors():
    one, two = tensors((3,)), tensors((3,), (3,))
    for call in (
        lambda where: torch._foreach_add(copy_to(one, where), copy_to(two, where)),
        lambda where: torch._foreach_add_([torch.ones(3, device=where)], [1.0, 2.0]),
        lambda where: torch._foreach_sub(copy_to(one, where), True),
        lambda where: torch._foreach_mul([], 2.0),
        lambda where: torch._foreach_add_(copy_to(one, where), [torch.ones(4, device=where)]),
        lambda where: torch._foreach_mul_(copy_to(one, where), 1j),
        lambda where: torch._foreach_addcmul_(
            copy_to(one, where), copy_to(one, where), copy_to(one, where), torch.ones(2)
        ),
        lambda where: torch._foreach_mul(copy_to(one, where), torch.ones(2, device=where)),
    ):
        with pytest.raises(Exception) as expected:
            call("cpu")
        with pytest.raises(type(expected.value)):
            call(DEVICE)


@pytest.mark.parametrize("foreach", [None, True, False])
@pytest.mark.parametrize("norm", [1.0, 2.0, float("inf")])
def test_clipping_gradients(norm, foreach):
    def clip(*gradients):
        parameters = [torch.nn.Parameter(torch.zeros_like(gradient)) for gradient in gradients]
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient.clone()
        total = torch.nn.utils.clip_grad_norm_(parameters, 1.0, norm, foreach=foreach)
        clipped = [parameter.grad.clone() for parameter in parameters]
        torch.nn.utils.clip_grad_value_(parameters, 0.1, foreach=foreach)
        return total, clipped, [parameter.grad for parameter in parameters]

    gradients = [*tensors((3, 4), (5,), ()), torch.randn(6).bfloat16()]
    check_call(clip, tuple(gradients), dtype=torch.bfloat16, grad=False)


def test_a_number_is_data(metrics):
    """Other numbers make no other program, whether one for all or one for each."""
    a, b = copy_to(tensors((3,), (4,)), DEVICE), copy_to(tensors((3,), (4,)), DEVICE)
    torch_xla.sync()
    for number in (0.5, 1.5, 3):
        torch._foreach_mul_(a, number)
        torch._foreach_addcdiv_(a, b, b, [number, 2.0 * number])
        torch._foreach_lerp_(a, b, 0.1 * number)
        torch_xla.sync()
    assert met.metric_data("CompileTime")[0] == 1
