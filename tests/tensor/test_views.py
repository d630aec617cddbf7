"""Views and in-place operations: random programs, run on xla and on CPU side by side."""

from __future__ import annotations

import random

import pytest
import torch

import torch_xla

# --- Random programs ---


def fits(view):
    """Sizes that keep a program small, and dims that its operations can work on."""
    return 0 < view.numel() <= 400 and view.dim() <= 5


def choose_view(rng, t):
    """A function that makes a view of `t`, or of any tensor of the same geometry."""
    kinds = [
        "slice", "select", "transpose", "permute", "unsqueeze", "squeeze", "expand", "diagonal",
        "unfold", "flatten", "view", "narrow", "chunk", "unflatten", "movedim", "as_strided",
        "alias", "ellipsis",
    ]  # fmt: skip
    kind = rng.choice(kinds)
    dim = rng.randrange(t.dim()) if t.dim() else None
    if kind == "unsqueeze":
        at = rng.randint(0, t.dim())
        return lambda x: x.unsqueeze(at)
    if kind == "alias":
        return lambda x: x[...].detach()
    if kind == "expand":
        count = rng.randint(1, 3)
        return lambda x: x.unsqueeze(0).expand(count, *x.shape)
    if kind == "squeeze":
        return lambda x: x.squeeze()
    if kind == "as_strided":
        count = t.untyped_storage().nbytes() // t.element_size()
        offset = rng.randrange(count)
        left = count - 1 - offset
        sizes, strides = [], []
        for _ in range(2):
            strides.append(rng.randint(0, 4))
            sizes.append(rng.randint(1, min(left // strides[-1] + 1, 4) if strides[-1] else 2))
            left -= (sizes[-1] - 1) * strides[-1]
        return lambda x: x.as_strided(sizes, strides, offset)
    if dim is None:
        return lambda x: x.view(1)
    size = t.size(dim)
    if kind == "slice":
        start, step = rng.randrange(size), rng.randint(1, 3)
        stop = rng.randint(start + 1, size)
        index = (slice(None),) * dim + (slice(start, stop, step),)
        return lambda x: x[index]
    if kind == "select":
        at = rng.randrange(-size, size)
        return lambda x: x.select(dim, at)
    if kind == "transpose":
        other = rng.randrange(t.dim())
        return lambda x: x.transpose(dim, other)
    if kind == "permute":
        order = rng.sample(range(t.dim()), t.dim())
        return lambda x: x.permute(order)
    if kind == "diagonal":
        if t.dim() < 2:
            return lambda x: x[None]
        first, second = rng.sample(range(t.dim()), 2)
        offset = rng.randint(1 - t.size(first), t.size(second) - 1)
        return lambda x: x.diagonal(offset, first, second)
    if kind == "unfold":
        window, step = rng.randint(1, size), rng.randint(1, 2)
        return lambda x: x.unfold(dim, window, step)
    if kind == "flatten":
        return lambda x: x.flatten()  # a copy where no view is possible
    if kind == "view":
        if not t.is_contiguous():
            return lambda x: x.mT if x.dim() > 1 else x[:]
        return lambda x: x.view(-1)
    if kind == "narrow":
        start = rng.randrange(size)
        length = rng.randint(1, size - start)
        return lambda x: x.narrow(dim, start, length)
    if kind == "chunk":
        count = rng.randint(1, 3)
        return lambda x: x.chunk(count, dim)[-1]
    if kind == "unflatten":
        inner = rng.choice([n for n in range(1, size + 1) if size % n == 0])
        return lambda x: x.unflatten(dim, (size // inner, inner))
    if kind == "movedim":
        to = rng.randrange(t.dim())
        return lambda x: x.movedim(dim, to)
    at = rng.randrange(t.size(-1))
    return lambda x: x[..., at]


def overlaps(t):
    addresses = torch.arange(t.untyped_storage().nbytes() // t.element_size())
    own = addresses.as_strided(t.size(), t.stride(), t.storage_offset()).flatten()
    return own.unique().numel() != own.numel()


def choose_update(rng, t, pool):
    """A function that changes `t` in place; it takes the pool, to read other tensors of it."""
    number = rng.randint(-3, 3)
    if overlaps(t):
        return lambda x, pool: x.fill_(number)
    matching = [i for i, other in enumerate(pool) if other.shape == t.shape]
    other = rng.choice(matching)
    # Reading and writing partly the same memory is an error on CPU; a clone is not.
    kinds = ["add", "mul", "fill", "zero", "copy", "copy_clone", "set_scalar", "set_slice", "sub"]
    kind = rng.choice(kinds)
    if kind == "add":
        return lambda x, pool: x.add_(number)
    if kind == "mul":
        return lambda x, pool: x.mul_(number).add_(1)
    if kind == "fill":
        return lambda x, pool: x.fill_(number)
    if kind == "zero":
        return lambda x, pool: x.zero_()
    if kind == "copy":
        return lambda x, pool: x.copy_(torch.arange(x.numel(), device=x.device).view(x.shape))
    if kind == "copy_clone":
        return lambda x, pool: x.copy_(pool[other].clone())
    if kind == "sub":
        return lambda x, pool: x.sub_(pool[other].clone(), alpha=2)
    if kind == "set_scalar" and t.dim():
        index = tuple(rng.randrange(n) for n in t.shape)

        def set_scalar(x, pool):
            x[index] = number

        return set_scalar

    def set_slice(x, pool):
        if x.dim():
            x[::2] = number

    return set_slice


class Twins:
    """The same program on two devices."""

    def __init__(self, seed, device):
        self.rng = random.Random(seed)
        self.device = device
        shape = [self.rng.randint(1, 5) for _ in range(self.rng.randint(1, 4))]
        base = torch.arange(torch.Size(shape).numel(), dtype=torch.int64).view(shape)
        if self.rng.random() < 0.3:
            base = base.transpose(0, -1).clone()  # dense, not row-major
        self.cpu = [base]
        self.xla = [base.to(device)]
        self.log = []

    def step(self):
        at = self.rng.randrange(len(self.cpu))
        if self.rng.random() < 0.5 and len(self.cpu) < 12:
            make = choose_view(self.rng, self.cpu[at])
            view = make(self.cpu[at])
            if fits(view):
                self.cpu.append(view)
                self.xla.append(make(self.xla[at]))
        else:
            update = choose_update(self.rng, self.cpu[at], self.cpu)
            update(self.cpu[at], self.cpu)
            update(self.xla[at], self.xla)
        if self.rng.random() < 0.05:
            torch_xla.sync()

    def check(self):
        for cpu, xla in zip(self.cpu, self.xla, strict=True):
            assert xla.device == self.device
            assert xla.shape == cpu.shape
            assert xla.stride() == cpu.stride()
            assert xla.storage_offset() == cpu.storage_offset()
            assert xla.is_contiguous() == cpu.is_contiguous()
            torch.testing.assert_close(xla.cpu(), cpu, rtol=0, atol=0)

        def sharing(pool):
            return [[torch._C._is_alias_of(a, b) for a in pool] for b in pool]

        assert sharing(self.xla) == sharing(self.cpu)


@pytest.mark.parametrize("seed", range(40))
def test_random_programs(device, seed):
    twins = Twins(seed, device)
    for _ in range(25):
        twins.step()
    twins.check()


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_under_autograd(device, seed):
    """Views and in-place updates that autograd records, and the gradient of what comes out."""

    def run(device):
        rng = random.Random(seed)
        leaf = (
            torch.linspace(-1, 1, 24, dtype=torch.float64).view(2, 3, 4).to(device).requires_grad_()
        )
        pool = [leaf * 1.5]
        for _ in range(10):
            at = rng.randrange(len(pool))
            t = pool[at]
            if rng.random() < 0.6:
                kinds = ["slice", "select", "transpose", "flatten", "unsqueeze", "expand"]
                kind = rng.choice(kinds)
                if kind == "flatten" or t.dim() == 0:
                    pool.append(t.reshape(-1))
                elif kind == "slice":
                    pool.append(t[rng.randrange(t.size(0)) :])
                elif kind == "select":
                    pool.append(t.select(-1, rng.randrange(t.size(-1))))
                elif kind == "transpose":
                    pool.append(t.transpose(0, -1))
                elif kind == "unsqueeze":
                    pool.append(t.unsqueeze(-1))
                else:
                    pool.append(t.unsqueeze(0).expand(2, *t.shape))
            elif 0 not in t.stride():
                factor = rng.uniform(-1, 1)
                if rng.random() < 0.5:
                    t.mul_(factor)
                else:
                    t.add_(pool[0].sum() * factor)
        loss = sum((t * (i + 1)).sum() for i, t in enumerate(pool))
        loss.backward()
        return [loss.detach().cpu(), leaf.grad.cpu(), *(t.detach().cpu() for t in pool)]

    for got, want in zip(run(device), run("cpu"), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)


# --- What views are ---


def test_views_share_storage_and_copies_do_not(device):
    x = torch.arange(6.0, device=device)
    view, copy = x.view(2, 3).t()[1], x.clone()
    assert view._base is x
    assert view.untyped_storage()._cdata == x.untyped_storage()._cdata
    assert copy.untyped_storage()._cdata != x.untyped_storage()._cdata
    x += 10
    assert view.tolist() == [11, 14]
    view.zero_()
    assert x.tolist() == [10, 0, 12, 13, 0, 15]
    assert copy.tolist() == list(range(6))


@pytest.mark.parametrize("format", [torch.channels_last, torch.contiguous_format])
def test_memory_formats(device, format):
    def run(device):
        x = torch.arange(120.0).view(2, 3, 4, 5).to(device).to(memory_format=format)
        y = torch.empty_like(x, memory_format=torch.preserve_format).copy_(x)
        z = x.to(memory_format=torch.channels_last)[:, 1:].mul(2)
        w = torch.empty(2, 3, 4, 5, device=device, memory_format=torch.channels_last).fill_(3)
        v = x.contiguous().view(-1)
        return [x, y, z, w, v, x.clone(), x.permute(0, 2, 3, 1).contiguous(), x + 1]

    for got, want in zip(run(device), run("cpu"), strict=True):
        assert got.stride() == want.stride()
        torch.testing.assert_close(got.cpu(), want)
        assert got.cpu().stride() == want.stride()


@pytest.mark.parametrize(
    ("start", "other"),
    [
        (torch.float32, torch.int32),
        (torch.float32, torch.uint8),
        (torch.uint8, torch.float16),
        (torch.int64, torch.bfloat16),
        (torch.complex64, torch.float64),
        (torch.bool, torch.uint8),
        (torch.uint8, torch.bool),
        (torch.float64, torch.complex64),
    ],
    ids=str,
)
def test_other_dtypes_of_the_same_memory(device, start, other):
    def run(device):
        x = (torch.arange(16) % 2).to(start).view(2, 8).to(device)
        y = x.view(other)
        z = x[1:].view(other)
        z.view(-1)[:1].fill_(1)
        return [x, y, z, x.view(other).view(start)]

    for got, want in zip(run(device), run("cpu"), strict=True):
        assert (got.shape, got.stride(), got.dtype) == (want.shape, want.stride(), want.dtype)
        assert torch.equal(got.cpu().view(torch.uint8), want.view(torch.uint8))


def test_parts_of_complex_numbers(device):
    def run(device):
        x = torch.tensor([1 + 2j, 3 - 4j, -5 + 6j]).to(device)
        real, pairs, conjugate = x.real, torch.view_as_real(x), x.conj()
        real.mul_(2)
        pairs[1, 1] = 9
        x.imag[2:] = 0
        negative = conjugate.imag
        assert conjugate.is_conj() and negative.is_neg()
        pairs_of_own = torch.zeros(2, 2).to(device)
        torch.view_as_complex(pairs_of_own)[1] = 3 + 4j
        return [x, real, pairs, conjugate, negative, conjugate.resolve_conj(), pairs_of_own,
                conjugate * 2, negative + 1, conjugate.clone(), x.conj().T]  # fmt: skip

    for got, want in zip(run(device), run("cpu"), strict=True):
        assert got.is_conj() == want.is_conj()
        assert got.is_neg() == want.is_neg()
        torch.testing.assert_close(got.cpu(), want, rtol=0, atol=0)


def test_writes_through_conjugates(device):
    def run(device):
        x = torch.zeros(3, dtype=torch.complex64).to(device)
        x.conj()[0] = 1 + 2j
        x.conj().imag[1] = 5
        x.conj().copy_(x + 1)
        return x

    assert run(device).tolist() == run("cpu").tolist()


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.add_(1),
        lambda x: x.copy_(torch.zeros(3, device=x.device)),
        lambda x: x.fill_(torch.tensor(1.0, device=x.device)),
        lambda x: x.uniform_(),
    ],
    ids=["add_", "copy_", "fill_ tensor", "uniform_"],
)
def test_writes_to_expanded_tensors_are_refused(device, write):
    for where in ("cpu", device):
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
            write(torch.zeros(1, device=where).expand(3))


def test_fills_of_expanded_tensors_are_not(device):
    x = torch.zeros(2, device=device)
    x.expand(3, 2).fill_(4)
    x[:1].expand(5).zero_()
    assert x.tolist() == [0, 4]


def test_copies_within_the_same_memory(device):
    for where in ("cpu", device):
        x = torch.arange(5.0, device=where)
        with pytest.raises(RuntimeError, match="refer to a single memory location"):
            x[1:].copy_(x[:-1])
        x.copy_(x)
        x[1:].copy_(x[:-1].clone())
        assert x.tolist() == [0, 0, 1, 2, 3]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda x: x.view(5), RuntimeError),
        (lambda x: x.t().view(6), RuntimeError),
        (lambda x: x.as_strided((7,), (1,)), RuntimeError),
        (lambda x: x.as_strided((2,), (-1,)), RuntimeError),
        (lambda x: x.as_strided((2,), (1,), -1), RuntimeError),
        (lambda x: x[2], IndexError),
        (lambda x: x.select(0, -3), IndexError),
        (lambda x: x.narrow(1, 2, 2), RuntimeError),
        (lambda x: x.transpose(0, 2), IndexError),
        (lambda x: x.expand(3, 3), RuntimeError),
        (lambda x: x.unfold(1, 4, 1), RuntimeError),
        (lambda x: x.diagonal(0, 1, 1), RuntimeError),
        (lambda x: x.view(torch.float64), RuntimeError),
        (lambda x: torch.view_as_complex(x), RuntimeError),
    ],
)
def test_impossible_views_raise_what_cpu_raises(device, call, error):
    base = torch.arange(6.0).view(2, 3)
    with pytest.raises(error) as want:
        call(base)
    with pytest.raises(error) as got:
        call(base.to(device))
    assert str(got.value) == str(want.value)


def test_slices_do_not_recompile_for_the_numbers_in_them(device, metrics):
    x = torch.zeros(8, device=device)
    compiled = []
    for i in range(4):
        x[2:5] = 1.5 + i
        torch_xla.sync()
        compiled.append(metrics.counter_value("UncachedCompile"))
    assert compiled[-1] == compiled[1]
    assert x.tolist() == [0, 0, 4.5, 4.5, 4.5, 0, 0, 0]
