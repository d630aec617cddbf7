"""csrc/aten/matmul.cpp, linear.cpp and broadcast_matmul.cpp against CPU."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from harness import (
    DEVICE,
    check_call,
    check_errors,
    check_sample,
    check_variants,
    ops,
    pairs,
    samples,
)

import torch_xla
from torch_xla import _XLAC

PRODUCTS = ops("mm", "bmm", "mv", "dot", "vdot", "addmm", "addmv", "addbmm", "baddbmm")
COMPOSED = ops("matmul", "__rmatmul__", "einsum", "inner", "outer", "tensordot", "addr")
OPS = PRODUCTS + COMPOSED + ops("nn.functional.linear", "nn.functional.bilinear")


@pytest.mark.parametrize("op, dtype", pairs(OPS))
def test_values(op, dtype):
    for sample in samples(op, dtype, 6 if dtype == torch.float32 else 2):
        check_sample(op, sample, dtype)


@pytest.mark.parametrize("op, dtype", pairs(PRODUCTS, [torch.complex64, torch.uint8, torch.int32]))
def test_other_dtypes(op, dtype):
    for sample in samples(op, dtype, 2):
        check_sample(op, sample, dtype)


@pytest.mark.parametrize("op, dtype", pairs(PRODUCTS, [torch.float32]))
def test_variants(op, dtype):
    for sample in samples(op, dtype, 2):
        check_variants(op, sample, dtype)


@pytest.mark.parametrize("op", [op for op in OPS if op.error_inputs_func], ids=lambda op: op.name)
def test_errors(op):
    check_errors(op)


@pytest.mark.parametrize("types", [("bool", "int64"), ("int64", "bool"), ("bool", "bool")])
def test_bools_are_refused(types):
    messages = []
    for device in ("cpu", DEVICE):
        a, b = (torch.ones(1, 2, 2, dtype=getattr(torch, t), device=device) for t in types)
        with pytest.raises(RuntimeError) as error:
            a @ b
        messages.append((type(error.value), str(error.value)))
    assert messages[0][0] is messages[1][0], messages


def tensor(*sizes, dtype=torch.float32):
    return torch.randn(*sizes, dtype=torch.float64).to(dtype).requires_grad_()


@pytest.mark.parametrize(
    "a, b",
    [
        ((3,), (3,)),
        ((2, 3), (3,)),
        ((3,), (3, 4)),
        ((5, 2, 3), (3,)),
        ((3,), (5, 3, 4)),
        ((5, 2, 3), (3, 4)),
        ((2, 3), (5, 3, 4)),
        ((5, 2, 3), (5, 3, 4)),
        ((1, 2, 3), (5, 3, 4)),
        ((2, 1, 2, 3), (5, 3, 4)),
        ((2, 5, 2, 3), (1, 1, 3, 4)),
        ((2, 5, 2, 0), (2, 5, 0, 4)),
        ((0, 2, 3), (0, 3, 4)),
    ],
)
def test_matmul_broadcasts(a, b):
    check_call(torch.matmul, (tensor(*a), tensor(*b)))


def test_gradient_of_gradient():
    def twice(function):
        def penalty(*args):
            result = function(*args)
            grads = torch.autograd.grad(result.square().sum(), args, create_graph=True)
            return sum(g.square().sum() for g in grads)

        return penalty

    check_call(twice(torch.matmul), (tensor(4, 2, 3), tensor(3, 5)))
    check_call(twice(torch.matmul), (tensor(4, 1, 2, 3), tensor(4, 3, 5)))
    check_call(twice(torch.matmul), (tensor(4, 2, 3), tensor(3)))
    check_call(twice(F.linear), (tensor(4, 2, 3), tensor(5, 3), tensor(5)))


def test_forward_mode():
    x, w, t = torch.randn(2, 4, 3), torch.randn(5, 3), torch.randn(2, 4, 3)

    def tangent(x, w, t):
        return torch.func.jvp(lambda x: F.linear(x, w) @ w, (x,), (t,))[1]

    check_call(tangent, (x, w, t), native=False)


def test_function_transforms():
    x, w = torch.randn(2, 4, 3), torch.randn(5, 3)

    def loss(x, w):
        return (F.linear(x.detach(), w) @ w + F.linear(x, w.detach()).sum()).square().sum()

    check_call(lambda x, w: torch.func.grad(loss, argnums=(0, 1))(x, w), (x, w))
    check_call(lambda x, w: torch.vmap(loss, (0, None))(x, w), (x, w))


# Most sizes here are below those from which torch's kernels are faster: "always" reaches them too.
@pytest.fixture(params=["never", "always"])
def kernels(request):
    _XLAC._set_cpu_kernels(request.param)
    yield request.param
    _XLAC._set_cpu_kernels("faster")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("sizes", [(4,), (2, 4), (3, 2, 4), (2, 0, 4), (2, 3, 2, 4)])
@pytest.mark.parametrize("bias", [True, False])
def test_linear(dtype, sizes, bias, kernels):
    args = (tensor(*sizes, dtype=dtype), tensor(5, 4, dtype=dtype))
    check_call(F.linear, args + ((tensor(5, dtype=dtype),) if bias else ()))


# The result is cut into parts of rows or of columns, the last of which may be shorter.
@pytest.mark.parametrize(
    "rows, width, out", [(1, 300, 70), (65, 3, 500), (500, 7, 33), (130, 5, 131)]
)
def test_linear_in_parts(rows, width, out, kernels):
    check_call(F.linear, (tensor(rows, width), tensor(out, width), tensor(out)))
    check_call(F.linear, (tensor(rows, 1, width), tensor(out, width)))


def test_torch_kernels_run_where_they_are_faster():
    def text(rows, dtype=torch.float32):
        x = torch.empty(rows, 700, dtype=dtype, device=DEVICE)
        w = torch.empty(600, 700, dtype=dtype, device=DEVICE, requires_grad=True)
        F.linear(x, w).sum().backward()
        return _XLAC._get_stablehlo([w.grad])

    if "torch_xla.product" not in text(1000):
        pytest.skip("not the CPU plugin, one without custom calls, or a torch without MKL")
    assert "torch_xla.product" not in text(900)
    assert "torch_xla.product" not in text(1000, torch.bfloat16)
    _XLAC._set_cpu_kernels("never")
    assert "torch_xla.product" not in text(1000)
    _XLAC._set_cpu_kernels("faster")


def test_products_of_one_program_do_not_wait_for_each_other(kernels):
    w = [torch.randn(256, 256, device=DEVICE, requires_grad=True) for _ in range(4)]
    x = torch.randn(256, 256, device=DEVICE)
    for _ in range(20):
        sum(F.linear(F.linear(x, a), b).square().mean() for a in w for b in w).backward()
        torch_xla.sync(wait=True)
    expected = [a.detach().cpu().requires_grad_() for a in w]
    x = x.cpu()
    sum(F.linear(F.linear(x, a), b).square().mean() for a in expected for b in expected).backward()
    for a, b in zip(w, expected, strict=True):
        torch.testing.assert_close(a.grad.cpu() / 20, b.grad, rtol=1e-4, atol=1e-4)


def test_only_wanted_gradients():
    x, w = torch.randn(3, 2, 4, device=DEVICE), torch.randn(5, 4, device=DEVICE)
    bias = torch.randn(5, device=DEVICE, requires_grad=True)
    F.linear(x, w, bias).sum().backward()
    assert bias.grad.tolist() == [6.0] * 5
    assert x.grad is None and w.grad is None


def test_zero_beta_ignores_what_is_added():
    nan = torch.full((2, 2), math.nan)
    x = torch.eye(2)
    check_call(lambda c, x: torch.addmm(c, x, x, beta=0), (nan, x))
    check_call(lambda c, x: torch.baddbmm(c[None], x[None], x[None], beta=0.0), (nan, x))
    check_call(lambda c, x: torch.addmv(c[0], x, x[0], beta=0), (nan, x))


def test_scaling_does_not_recompile():
    import torch_xla
    import torch_xla.debug.metrics as met

    x = torch.rand(4, 4, device=DEVICE)
    torch_xla.sync()

    def step(beta, alpha):
        y = torch.addmm(x, x, x, beta=beta, alpha=alpha)
        torch_xla.sync()
        return y.cpu()

    step(0.5, 0.25)
    before = met.metric_data("CompileTime")[0]
    host = x.cpu()
    expected = torch.addmm(host, host, host, beta=0.125, alpha=3.5)
    assert torch.allclose(step(0.125, 3.5), expected, atol=1e-5)
    assert met.metric_data("CompileTime")[0] == before


def test_halves_accumulate_in_f32():
    x = torch.full((1, 4096), 0.1, dtype=torch.bfloat16)
    expected = (x.double() @ x.double().t()).bfloat16()
    assert torch.equal((x.to(DEVICE) @ x.t().to(DEVICE)).cpu(), expected)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.mm(x.double()),
        lambda x: torch.addmm(x.double(), x, x),
        lambda x: torch.bmm(x[None], x[None].double()),
        lambda x: torch.dot(x[0], x[0].double()),
        lambda x: torch.mv(x, x[0].double()),
        lambda x: torch.matmul(x[None], x[None].double()),
        lambda x: F.linear(x, x.double()),
        lambda x: F.linear(x, x[:, :2]),
        lambda x: F.linear(x, x, x[0, :2]),
        lambda x: x.bool().mm(x.bool()),
        lambda x: x.mm(x[:2]),
        lambda x: x.mm(x.cpu()),
    ],
)
def test_mismatches_raise(call):
    with pytest.raises(RuntimeError):
        call(torch.randn(3, 3, device=DEVICE))


def test_int8_product():
    a = torch.randint(-128, 128, (17, 24), dtype=torch.int8)
    b = torch.randint(-128, 128, (24, 8), dtype=torch.int8)
    check_call(torch._int_mm, (a, b))


def test_bools_without_elements():
    """What has nothing to multiply has no dtype that it cannot be multiplied in."""
    for a, b in (((0, 2), (2, 3)), ((2, 0), (0, 3)), ((0, 2), (2,)), ((2, 0, 2), (2, 2, 2))):
        x, y = torch.zeros(a, dtype=torch.bool), torch.zeros(b, dtype=torch.bool)
        assert torch.equal((x.to(DEVICE) @ y.to(DEVICE)).cpu(), x @ y)
    with pytest.raises(NotImplementedError, match="not implemented for 'Bool'"):
        torch.ones(2, 2, dtype=torch.bool, device=DEVICE) @ torch.ones(
            2, 2, dtype=torch.bool, device=DEVICE
        )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("batch", [(1,), (1, 1), (2, 1), (1, 2), (2, 3)], ids=str)
def test_short_floats_transposed_on_either_side(batch, dtype):
    a, b = torch.randn(*batch, 8, 3), torch.randn(*batch, 8, 4)
    a, b = a.to(dtype), b.to(dtype)

    def products(a, b):
        return a.mT @ b, (a * 2).mT @ (b.mT * 2).mT, torch.einsum("...ki,...kj->...ij", a, b)

    check_call(products, (a.requires_grad_(), b.requires_grad_()), dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
@pytest.mark.parametrize("sizes", [(), (3,), (1, 3), (2, 1), (1, 2, 3), (0,), (2, 3)])
def test_addr_takes_the_sizes_that_cpu_takes(sizes, dtype):
    """The functional form broadcasts what is added to; the in-place form does not."""
    for function in (torch.addr, lambda x, a, b: x.addr_(a, b)):
        given = (torch.ones(sizes), torch.ones(2), torch.ones(3))
        results = []
        for device in ("cpu", DEVICE):
            x, a, b = (t.clone().to(dtype).to(device) for t in given)
            try:
                results.append(function(x, a, b).cpu())
            except RuntimeError:
                results.append(None)
        expected, got = results
        assert (expected is None) == (got is None)
        assert expected is None or torch.equal(expected, got)
