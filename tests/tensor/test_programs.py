"""Random programs: chains of views, in-place updates, reductions, pointwise and indexing operators
and gradients over tensors that share storage, with syncs in between, do what they do on CPU.

A program is a list of steps, (name of an operator, numbers that choose its operands and arguments),
so that hypothesis can shrink one that fails and a test can spell it out. Both devices run step by
step: a step that raises on one must raise the same type of exception on the other: at the call, or
where only the device knows what is wrong, when results are read, which ends the program. At the
end, every tensor agrees in values, dtype, sizes, strides, gradient, and in whom it shares memory
with.

What PyTorch leaves open is left out: updates of tensors some of whose elements are others' too
(windows that overlap) or from the memory that they update, what an operator wrote before it raised,
bools that are neither 0 nor 1.

    TORCH_XLA_PROGRAMS=20000 python -m pytest tests/tensor/test_programs.py

runs that many programs, other ones each time; by default it is a few hundred, always the same.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from random import Random

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import torch_xla

DEVICE = torch_xla.device()
PROGRAMS = int(os.environ.get("TORCH_XLA_PROGRAMS", "0"))
MAX_TENSORS = 12
MAX_ELEMENTS = 200

DTYPES = [
    torch.float32,
    torch.int64,
    torch.float32,
    torch.bool,
    torch.float64,
    torch.bfloat16,
    torch.int32,
    torch.int16,
    torch.complex64,
]
TOLERANCE = {
    torch.bfloat16: 3e-2,
    torch.float32: 1e-4,
    torch.complex64: 1e-4,
    torch.float64: 1e-7,
}


class Numbers:
    """The numbers of a step, taken one by one; zeros when they run out."""

    def __init__(self, numbers: Sequence[int]):
        self._numbers = list(numbers)

    def below(self, limit: int) -> int:
        number = self._numbers.pop(0) if self._numbers else 0
        return number % max(1, limit)

    def pick(self, options: Sequence):
        return options[self.below(len(options))]

    def dim(self, x: torch.Tensor) -> int:
        """A dimension of x, from the front or the back. Out of range for a scalar, sometimes."""
        return self.below(2 * max(1, x.dim())) - max(1, x.dim())


class Machine:
    """The tensors that a program has made so far, on one device."""

    def __init__(self, device: torch.device | str):
        self.device = device
        self.tensors: list[torch.Tensor] = []

    def add(self, value) -> None:
        for x in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(x, torch.Tensor) and x.numel() <= MAX_ELEMENTS:
                self.tensors.append(x)
        del self.tensors[:-MAX_TENSORS]

    def pick(self, n: Numbers, like: Callable[[torch.Tensor], bool] = lambda x: True):
        """A tensor that `like` approves of; any at all when there is none."""
        fitting = [x for x in reversed(self.tensors) if like(x)]
        return n.pick(fitting or self.tensors[::-1])


def places(x: torch.Tensor) -> list[int]:
    """Where the elements are in memory, from the first."""
    found = [0]
    for size, stride in zip(x.size(), x.stride(), strict=True):
        found = [place + i * stride for place in found for i in range(size)]
    return found


def is_folded(x: torch.Tensor) -> bool:
    """Whether elements share memory in another way than by a stride of 0."""
    if any(n > 1 and s == 0 for n, s in zip(x.size(), x.stride(), strict=True)):
        return False
    return len(set(places(x))) < x.numel()


def has_gaps(x: torch.Tensor) -> bool:
    return sorted(places(x)) != list(range(x.numel()))


STEPS: dict[str, Callable] = {}


def step(function: Callable) -> Callable:
    """Adds function(machine, numbers) -> new tensors or None to the operators of programs."""
    STEPS[function.__name__.strip("_")] = function
    return function


def calls(prefix: str, **functions: Callable) -> None:
    """The same for functions of a tensor and numbers."""
    for name, function in functions.items():

        def run(m: Machine, n: Numbers, function=function):
            x = m.pick(n)
            return None if prefix == "inplace" and is_folded(x) else function(x, n)

        STEPS[f"{prefix}_{name}"] = run


def pairs(prefix: str, **functions: Callable) -> None:
    """The same for functions of two tensors, which often share sizes or storage."""
    for name, function in functions.items():
        updates = prefix == "inplace" or name.endswith("_into")

        def run(m: Machine, n: Numbers, function=function, updates=updates):
            x = m.pick(n)
            same = n.below(3)
            if same == 0:
                y = m.pick(n, lambda y: y.size() == x.size())
            elif same == 1:
                y = m.pick(n, lambda y: y.dtype == x.dtype and y.dim() <= x.dim())
            else:
                y = m.pick(n)
            # Of operands in one storage, PyTorch compares those without gaps.
            shared = same_memory([x, y]) == [0, 0] and not y.is_set_to(x)
            if updates and (is_folded(x) or (shared and (has_gaps(x) or has_gaps(y)))):
                return None
            return function(x, y, n)

        STEPS[f"{prefix}_{name}"] = run


# --- Where tensors come from, and what cuts the graph ---

SIZES = [(3, 4), (4,), (2, 3, 2), (3, 1), (), (4, 4), (1, 5), (0, 3), (2, 2, 2, 2)]


def fresh(n: Numbers, device) -> torch.Tensor:
    dtype, sizes, shift = n.pick(DTYPES), n.pick(SIZES), n.below(7)
    count = torch.Size(sizes).numel()
    values = (torch.arange(count) * 5 + shift) % 9
    if dtype.is_floating_point or dtype.is_complex:
        values = (values - 3) / 2
    elif dtype != torch.uint8:
        values = values - 3
    return values.to(dtype).reshape(sizes).clone().to(device)


@step
def new(m, n):
    return fresh(n, m.device)


@step
def new_strided(m, n):
    x = fresh(n, m.device)
    return torch.empty_strided(
        x.size(),
        x.t().contiguous().t().stride() if x.dim() == 2 else x.stride(),
        dtype=x.dtype,
        device=m.device,
    ).copy_(x)


@step
def new_leaf(m, n):
    x = fresh(n, m.device)
    return x.requires_grad_() if x.dtype.is_floating_point else x


@step
def sync(m, n):
    if m.device != "cpu":
        torch_xla.sync()


@step
def read(m, n):
    m.pick(n).tolist()


# --- Views ---


def as_strided(x, n):
    whole = x.untyped_storage().nbytes() // x.element_size()
    rows, columns = n.below(3) + 1, n.below(3) + 1
    strides = (n.below(4), n.below(3))
    offset = n.below(3)
    last = offset + (rows - 1) * strides[0] + (columns - 1) * strides[1]
    return torch.as_strided(x, (rows, columns), strides, offset) if last < whole else None


def narrow(x, n):
    dim = n.dim(x)
    size = x.size(dim)
    start = n.below(size + 1)
    return x.narrow(dim, start, n.below(size - start + 1))


def sliced(x, n):
    dim = n.below(max(1, x.dim()))
    index = [slice(None)] * dim + [slice(n.below(3), n.below(6) - 1 or None, n.below(3) + 1)]
    return x[tuple(index)]


def other_type(x, n):
    """Whole numbers are not seen as floats: small ones would be denormal, which XLA:CPU flushes."""
    if x.dtype == torch.bool:
        return None
    dtypes = [torch.int32, torch.float32, torch.uint8, torch.int64, torch.int16]
    return x.view(
        n.pick(dtypes if x.is_floating_point() else [d for d in dtypes if not d.is_floating_point])
    )


calls(
    "view",
    transpose=lambda x, n: x.transpose(n.dim(x), n.dim(x)),
    permute=lambda x, n: x.permute([(i + n.below(4)) % max(1, x.dim()) for i in range(x.dim())]),
    reverse=lambda x, n: x.permute(list(range(x.dim()))[::-1]),
    select=lambda x, n: x.select(n.dim(x), n.below(3) - 1),
    narrow=narrow,
    slice=sliced,
    unsqueeze=lambda x, n: x.unsqueeze(n.dim(x)),
    squeeze=lambda x, n: x.squeeze(),
    squeeze_dim=lambda x, n: x.squeeze(n.dim(x)),
    expand=lambda x, n: x.expand(n.below(2) + 2, *x.size()),
    expand_ones=lambda x, n: x.expand([3 if size == 1 else -1 for size in x.size()]),
    flat=lambda x, n: x.view(-1),
    reshape=lambda x, n: x.reshape(-1, n.below(3) + 1),
    flatten=lambda x, n: x.flatten(n.below(2)),
    as_strided=as_strided,
    diagonal=lambda x, n: x.diagonal(n.below(3) - 1),
    unfold=lambda x, n: x.unfold(n.dim(x), n.below(2) + 1, n.below(2) + 1),
    chunk=lambda x, n: x.chunk(2, n.dim(x)),
    unbind=lambda x, n: x.unbind(n.dim(x)),
    other_type=other_type,
    real=lambda x, n: torch.view_as_real(x),
    imag=lambda x, n: x.imag,
    conj=lambda x, n: x.conj(),
    detach=lambda x, n: x.detach(),
    data=lambda x, n: x.data,
    alias=lambda x, n: x.view(x.size()),
    matrix_t=lambda x, n: x.mT,
)

# --- In place ---


def assign_index(x, n):
    x[n.below(3)] = n.below(5)


def assign_slice(x, n):
    x[..., n.below(2) :: n.below(2) + 1] = n.below(5) - 1


def add_slice(x, n):
    x[n.below(2) :] += n.below(4)


def assign_mask(x, n):
    x[x > n.below(3)] = n.below(5)


def add_at_mask(x, n):
    x[x > n.below(3)] += 1


def set_geometry(name):
    def run(x, n):
        getattr(x, name)(*(n.dim(x) for _ in range(2 if name == "transpose_" else 1)))

    return run


calls(
    "inplace",
    add=lambda x, n: x.add_(n.below(4)),
    mul=lambda x, n: x.mul_(n.below(4) - 1),
    fill=lambda x, n: x.fill_(n.below(5)),
    zero=lambda x, n: x.zero_(),
    neg=lambda x, n: x.neg_(),
    relu=lambda x, n: x.relu_(),
    clamp=lambda x, n: x.clamp_(n.below(2) - 1, n.below(3) + 1),
    cumsum=lambda x, n: x.cumsum_(n.dim(x)),
    logical_not=lambda x, n: x.logical_not_(),
    trunc=lambda x, n: x.trunc_(),
    index=assign_index,
    slice=assign_slice,
    add_slice=add_slice,
    mask=assign_mask,
    add_at_mask=add_at_mask,
    index_fill=lambda x, n: x.index_fill_(n.dim(x), torch.tensor([0], device=x.device), n.below(4)),
    transpose=set_geometry("transpose_"),
    unsqueeze=set_geometry("unsqueeze_"),
    squeeze=set_geometry("squeeze_"),
    fill_diagonal=lambda x, n: x.fill_diagonal_(n.below(4)),
)


def assign_row(x, y, n):
    x[n.below(2)] = y


def assign_all(x, y, n):
    x[:] = y


def put_at_mask(x, y, n):
    mask = x > n.below(3)
    x[mask] = y.flatten()[: int(mask.sum())].to(x.dtype)


def exchange_data(x, y, n):
    x.data = y


def no_grad(function):
    def run(x, y, n):
        with torch.no_grad():
            function(x, y, n)

    return run


pairs(
    "inplace",
    add_tensor=lambda x, y, n: x.add_(y, alpha=n.below(2) + 1),
    sub_tensor=lambda x, y, n: x.sub_(y),
    mul_tensor=lambda x, y, n: x.mul_(y),
    copy=lambda x, y, n: x.copy_(y),
    copy_no_grad=no_grad(lambda x, y, n: x.copy_(y)),
    add_no_grad=no_grad(lambda x, y, n: x.add_(y)),
    row=assign_row,
    all=assign_all,
    put_at_mask=put_at_mask,
    data=exchange_data,
    masked_fill=lambda x, y, n: x.masked_fill_(y > n.below(2), n.below(5)),
    masked_scatter=lambda x, y, n: x.masked_scatter_(x > 1, y.repeat(2, *y.size()).clone()),
    index_add=lambda x, y, n: x.index_add_(0, torch.arange(y.size(0), device=x.device) % 2, y),
    index_copy=lambda x, y, n: x.index_copy_(0, torch.arange(y.size(0), device=x.device), y),
    index_put=lambda x, y, n: x.index_put_(
        (torch.tensor([0, 1, 0], device=x.device),), y, accumulate=True
    ),
    index_put_set=lambda x, y, n: x.index_put_((torch.tensor([2, 0], device=x.device),), y),
    scatter=lambda x, y, n: x.scatter_(n.dim(x), (y > 0).long()[:1] * 0, y),
    scatter_add=lambda x, y, n: x.scatter_add_(n.dim(x), (y > 0).long() * 0, y),
    set=lambda x, y, n: x.set_(y),
    logical_and=lambda x, y, n: x.logical_and_(y),
    where=lambda x, y, n: x.copy_(torch.where(x > 0, y, x)),
)

# --- Pointwise and reductions ---

calls(
    "map",
    add=lambda x, n: x + n.below(4),
    rsub=lambda x, n: n.below(4) - x,
    scale=lambda x, n: x * 0.5,
    neg=lambda x, n: -x,
    abs=lambda x, n: x.abs(),
    relu=lambda x, n: torch.relu(x),
    ceil=lambda x, n: torch.ceil(x),
    sign=lambda x, n: x.sign(),
    square=lambda x, n: x.square(),
    compare=lambda x, n: x > n.below(3) - 1,
    convert=lambda x, n: x.to(n.pick(DTYPES)),
    clone=lambda x, n: x.clone(),
    contiguous=lambda x, n: x.contiguous(),
    zeros_like=lambda x, n: torch.zeros_like(x),
    logical_not=lambda x, n: x.logical_not(),
    triu=lambda x, n: x.triu(n.below(3) - 1),
    flip=lambda x, n: x.flip(n.dim(x)),
    roll=lambda x, n: x.roll(n.below(3), n.dim(x)),
    repeat=lambda x, n: x.repeat(2, *[1] * x.dim()),
    floor_divide=lambda x, n: x // (n.below(3) + 1),
    remainder=lambda x, n: x % (n.below(3) + 2),
)
pairs(
    "map",
    add=lambda x, y, n: x + y,
    sub=lambda x, y, n: x - y,
    mul=lambda x, y, n: x * y,
    maximum=lambda x, y, n: torch.maximum(x, y),
    equal=lambda x, y, n: x == y,
    less=lambda x, y, n: x < y,
    where=lambda x, y, n: torch.where(y > 0, x, y),
    logical_or=lambda x, y, n: torch.logical_or(x, y),
    bitwise_and=lambda x, y, n: x & y,
    cat=lambda x, y, n: torch.cat([x, y], n.dim(x)),
    stack=lambda x, y, n: torch.stack([x, y]),
    matmul=lambda x, y, n: x @ y.to(x.dtype),
    add_out=lambda x, y, n: torch.add(x, y, out=torch.empty(0, dtype=x.dtype, device=x.device)),
    mul_into=lambda x, y, n: torch.mul(y, y, out=x),
)
calls(
    "reduce",
    sum=lambda x, n: x.sum(),
    sum_dim=lambda x, n: x.sum(n.dim(x), keepdim=bool(n.below(2))),
    mean=lambda x, n: x.mean(n.dim(x)),
    amax=lambda x, n: x.amax(n.dim(x)),
    max=lambda x, n: tuple(x.max(n.dim(x))),
    min=lambda x, n: x.min(),
    argmax=lambda x, n: x.argmax(n.dim(x)),
    prod=lambda x, n: x.clamp(-1, 2).prod(),
    any=lambda x, n: x.any(),
    all=lambda x, n: x.all(n.dim(x)),
    cumsum=lambda x, n: x.cumsum(n.dim(x)),
    count=lambda x, n: x.count_nonzero(),
    sort=lambda x, n: tuple(x.sort(n.dim(x), stable=True)),
    norm=lambda x, n: torch.linalg.vector_norm(x),
)

# --- Indexing ---


def positions(x, n):
    return torch.tensor([n.below(2), 0, -1 + n.below(2)]).to(x.device)


def gather(x, n):
    dim = n.dim(x)
    return x.gather(dim, torch.zeros(x.size(), dtype=torch.int64, device=x.device))


calls(
    "index",
    tensor=lambda x, n: x[positions(x, n)],
    last=lambda x, n: x[..., positions(x, n)],
    two=lambda x, n: x[positions(x, n), positions(x, n)],
    number=lambda x, n: x[n.below(3)],
    none=lambda x, n: x[None, ..., None],
    mask=lambda x, n: x[x > n.below(3)],
    rows=lambda x, n: x[x.select(-1, 0) > n.below(2)],
    nonzero=lambda x, n: x.nonzero(),
    where=lambda x, n: torch.where(x),
    select=lambda x, n: x.index_select(n.dim(x), torch.tensor([0, n.below(2)]).to(x.device)),
    gather=gather,
    take=lambda x, n: x.take(positions(x, n)),
    masked_select=lambda x, n: x.masked_select(x != n.below(3)),
    unique=lambda x, n: x.unique(),
    repeat_interleave=lambda x, n: x.repeat_interleave(n.below(2) + 1, n.dim(x)),
)

# --- Gradients ---


@step
def requires_grad(m, n):
    m.pick(n, lambda x: x.dtype.is_floating_point and x.is_leaf).requires_grad_()


@step
def backward(m, n):
    x = m.pick(n, lambda x: x.requires_grad and not x.is_leaf)
    x.sum().backward(retain_graph=bool(n.below(2)))


@step
def gradient(m, n):
    leaf = m.pick(n, lambda x: x.grad is not None)
    return leaf.grad


@step
def update(m, n):
    leaf = m.pick(n, lambda x: x.grad is not None)
    with torch.no_grad():
        leaf -= 0.5 * leaf.grad


@step
def differentiate(m, n):
    x = m.pick(n, lambda x: x.requires_grad)
    y = m.pick(n, lambda y: y.requires_grad and not y.is_leaf)
    return torch.autograd.grad(y.square().sum(), x, allow_unused=True, create_graph=True)


# --- Running and comparing ---

Program = list[tuple[str, list[int]]]


def attempt(m: Machine, name: str, numbers: list[int]) -> Exception | None:
    """Runs one step. What it raises is part of its result; what it wrote then is taken back."""
    storages = {x.untyped_storage()._cdata: x.untyped_storage() for x in m.tensors}
    copies = {key: s.clone() for key, s in storages.items()} if m.device == "cpu" else {}
    try:
        m.add(STEPS[name](m, Numbers(numbers)))
    except Exception as error:
        for key, copy in copies.items():
            if storages[key].nbytes() == copy.nbytes():
                storages[key].copy_(copy)
        return error
    return None


def error_of_reading(m: Machine) -> Exception | None:
    try:
        torch_xla.sync(wait=True)
        for x in m.tensors:
            x.detach().cpu()
        torch_xla.sync(wait=True)
    except Exception as error:
        return error
    return None


# What the contents of tensors may be the reason of.
OF_VALUES = (IndexError, RuntimeError)


def same_memory(tensors: list[torch.Tensor]) -> list[int]:
    """For each tensor, the first one that has its storage."""
    storages = [x.untyped_storage()._cdata for x in tensors]
    return [storages.index(storage) for storage in storages]


def significant_strides(x: torch.Tensor) -> list[int] | None:
    if x.numel() == 0:
        return None
    return [stride for size, stride in zip(x.size(), x.stride(), strict=True) if size > 1]


def check_same(want: torch.Tensor, have: torch.Tensor, value: torch.Tensor) -> None:
    """`have` is the tensor on the device, `value` what it holds."""
    assert have.dtype == want.dtype
    assert have.size() == want.size()
    assert significant_strides(have) == significant_strides(want)
    assert have.requires_grad == want.requires_grad and is_leaf(have) == is_leaf(want)
    tolerance = TOLERANCE.get(want.dtype, 0)
    scale = 1.0
    if tolerance and want.numel():
        finite = want.detach().abs().double().nan_to_num(0, 0, 0)
        scale = max(1.0, finite.max().item())
    torch.testing.assert_close(
        value, want.detach(), rtol=tolerance, atol=tolerance * scale, equal_nan=True
    )


def is_leaf(x: torch.Tensor) -> bool:
    try:
        return x.is_leaf
    except RuntimeError:  # one of several views of what was updated
        return False


def everything(m: Machine) -> list[torch.Tensor]:
    return m.tensors + [x.grad for x in m.tensors if is_leaf(x) and x.grad is not None]


def check(program: Program) -> None:
    """Runs a program on CPU and on xla and compares all that can be seen of its tensors."""
    cpu, xla = Machine("cpu"), Machine(DEVICE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, numbers in [("new", numbers) for _, numbers in program[:2]] + program:
            expected, got = attempt(cpu, name, numbers), attempt(xla, name, numbers)
            if isinstance(expected, OF_VALUES) and got is None:
                got = error_of_reading(xla)
                assert type(got) is type(expected), f"{name}: expected {expected!r}, got {got!r}"
                return
            assert type(got) is type(expected), f"{name}: expected {expected!r}, got {got!r}"
        wanted, held = everything(cpu), everything(xla)
        assert len(wanted) == len(held)
        assert same_memory(held) == same_memory(wanted)
        # One program for all that views show.
        values = [x.cpu() for x in [x.detach().clone() for x in held]]
    for want, have, value in zip(wanted, held, values, strict=True):
        check_same(want, have, value)


# Programs that failed once.
FOUND: dict[str, Program] = {
    "bits of floats": [("map_bitwise_and", [5, 0, 0, 0, 0, 0])],
    "complex numbers have no order": [
        ("new", [8, 0, 0, 0, 0, 0]),
        ("inplace_add_at_mask", [0, 0, 0, 0, 0, 0]),
    ],
    "complex numbers have no floor": [
        ("new", [8, 0, 0, 0, 0, 0]),
        ("map_floor_divide", [0, 0, 0, 0, 0, 0]),
    ],
    "values that overlap what they are put into": [("inplace_index_put", [0, 0, 0, 0, 0, 0])],
    "indices that overlap what they are put into": [
        ("view_unfold", [1, 8, 0, 0, 0, 0]),
        ("inplace_put_at_mask", [0, 0, 0, 0, 0, 0]),
    ],
    "the same memory with other strides of one element": [
        ("view_slice", [7, 3, 9, 9, 2, 3]),
        ("new", [5, 1, 2, 4, 6, 4]),
        ("map_cat", [0, 0, 1, 1, 0, 0]),
        ("inplace_mul_tensor", [2, 6, 3, 0, 4, 4]),
    ],
    "overlap comes before an empty dimension": [
        ("inplace_index_put", [0, 0, 0, 0, 0, 0]),
        ("map_floor_divide", [0, 7, 0, 0, 0, 0]),
    ],
    "a mask over an expanded tensor": [
        ("new", [3, 4, 0, 0, 0, 0]),
        ("view_expand", [0, 0, 0, 0, 0, 0]),
        ("map_mul", [0, 0, 0, 0, 0, 0]),
        ("inplace_masked_fill", [1, 0, 0, 0, 0, 0]),
    ],
    "positions of nothing": [
        ("view_narrow", [0, 0, 0, 0, 0, 0]),
        ("index_nonzero", [0, 0, 0, 0, 0, 0]),
        ("view_other_type", [0, 0, 0, 0, 0, 0]),
    ],
    "an index out of range along the second dimension": [("index_select", [0, 1, 1, 0, 0, 0])],
    "a mask with more dimensions": [
        ("new", [10, 4, 10, 8, 5, 3]),
        ("reduce_argmax", [6, 5, 10, 1, 3, 5]),
        ("inplace_masked_fill", [1, 11, 10, 5, 1, 8]),
    ],
    "more places than values": [
        ("reduce_norm", [4, 0, 11, 3, 3, 9]),
        ("map_add", [4, 2, 0, 3, 0, 3]),
        ("inplace_masked_scatter", [2, 11, 9, 4, 7, 4]),
    ],
    "bools without elements, multiplied": [
        ("view_slice", [3, 7, 8, 3, 0, 1]),
        ("map_matmul", [3, 5, 8, 3, 2, 7]),
    ],
    "running sums of expanded memory": [
        ("view_expand", [2, 1, 5, 6, 0, 10]),
        ("inplace_cumsum", [9, 11, 11, 10, 9, 11]),
    ],
    "sums of constant bools": [
        ("inplace_slice", [3, 2, 0, 8, 9, 1]),
        ("map_add_out", [3, 11, 2, 10, 0, 2]),
        ("inplace_unsqueeze", [6, 6, 11, 4, 5, 6]),
        ("new_leaf", [10, 2, 4, 4, 3, 6]),
        ("map_add", [7, 10, 7, 8, 9, 11]),
    ],
    "rows of an expanded tensor, filled": [
        ("view_expand", [10, 0, 3, 0, 3, 11]),
        ("inplace_index_fill", [9, 5, 1, 6, 3, 5]),
    ],
    "running sums of bools": [
        ("new", [3, 0, 0, 0, 0, 0]),
        ("inplace_cumsum", [0, 0, 0, 0, 0, 0]),
    ],
}


@pytest.mark.parametrize("name", FOUND)
def test_programs_that_failed(name):
    check(FOUND[name])


def drawn(random: Random) -> Program:
    """A program that no change elsewhere changes: hypothesis also draws numbers that it finds in
    the sources that are loaded."""
    names = sorted(STEPS)
    return [
        (random.choice(names), [random.randrange(12) for _ in range(6)])
        for _ in range(random.randint(2, 10))
    ]


@pytest.mark.parametrize("seed", range(10))
def test_programs(seed):
    random = Random(seed)
    for _ in range(25):
        program = drawn(random)
        try:
            check(program)
        except Exception as error:
            raise AssertionError(f"program={program!r}") from error


numbers = st.lists(st.integers(0, 11), min_size=6, max_size=6)
programs = st.lists(st.tuples(st.sampled_from(sorted(STEPS)), numbers), min_size=2, max_size=10)


@pytest.mark.skipif(not PROGRAMS, reason="the long run: TORCH_XLA_PROGRAMS=20000")
@settings(
    max_examples=PROGRAMS or 1,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=False,
)
@given(programs)
def test_many_programs(program: Program):
    check(program)
