"""csrc/aten/attention.cpp against CPU."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from harness import DEVICE, check_call, check_errors, check_sample, ops, pairs, samples
from torch.nn.attention import SDPBackend, sdpa_kernel

OPS = ops(
    "nn.functional.scaled_dot_product_attention", "nn.functional.multi_head_attention_forward"
)


def without_dropout(op, sample) -> bool:
    return not sample.kwargs.get("dropout_p") and not sample.kwargs.get("training")


@pytest.mark.parametrize("op, dtype", pairs(OPS))
def test_values(op, dtype):
    for sample in samples(op, dtype, 8 if dtype == torch.float32 else 3):
        if without_dropout(op, sample):
            check_sample(op, sample, dtype)


@pytest.mark.parametrize("op", [op for op in OPS if op.error_inputs_func], ids=lambda op: op.name)
def test_errors(op):
    check_errors(op)


def heads(batch, count, length, features, dtype=torch.float32):
    x = torch.randn(batch, length, count, features, dtype=torch.float64).to(dtype)
    return x.requires_grad_().transpose(1, 2).detach().requires_grad_()


def qkv(dtype=torch.float32, key_heads=4):
    return (
        heads(2, 4, 5, 8, dtype),
        heads(2, key_heads, 6, 8, dtype),
        heads(2, key_heads, 6, 8, dtype),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_plain(dtype, causal, scale):
    check_call(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale),
        qkv(dtype),
    )


@pytest.mark.parametrize("sizes", [(5, 6), (1, 6), (2, 4, 5, 6), (1, 1, 5, 6), (2, 1, 1, 6)])
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_masks(sizes, kind):
    mask = torch.rand(sizes) > 0.4 if kind == "bool" else torch.randn(sizes)
    check_call(F.scaled_dot_product_attention, (*qkv(), mask))


def test_learned_mask():
    check_call(F.scaled_dot_product_attention, (*qkv(), torch.randn(5, 6, requires_grad=True)))


def test_query_that_may_look_nowhere():
    mask = torch.ones(5, 6, dtype=torch.bool)
    mask[2] = False
    check_call(F.scaled_dot_product_attention, (*qkv(), mask))


def test_grouped_queries():
    check_call(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True), qkv(key_heads=2)
    )


def test_other_ranks_and_widths():
    q, k, v = (x.detach() for x in qkv())
    attend = F.scaled_dot_product_attention
    for args in (
        (q[0], k[0], v[0]),
        (q[0, 0], k[0, 0], v[0, 0]),
        (q, k, v[..., :3]),
        (q, k[:1], v),
    ):
        check_call(attend, tuple(x.detach().requires_grad_() for x in args), strides=False)


def test_result_is_laid_out_as_on_cpu():
    """Like the query where CPU's fused kernel takes the layouts, else row-major."""

    def lay(length, order):
        back = [order.index(i) for i in range(4)]
        sizes = (2, 4, length, 8)
        return torch.randn([sizes[i] for i in order]).permute(back)

    rows, length_first, features_first = (0, 2, 1, 3), (2, 0, 1, 3), (3, 0, 1, 2)
    for query in (rows, length_first, features_first):
        for other in (rows, features_first):
            given = lay(3, query), lay(6, other), lay(6, rows)
            check_call(F.scaled_dot_product_attention, given)


def test_is_one_operator_each_way():
    import torch_xla

    q, k, v = (x.detach().to(DEVICE).requires_grad_() for x in qkv())
    torch_xla.sync()
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert "Overrideable" in out.grad_fn.name()
    with sdpa_kernel(SDPBackend.MATH):
        assert "Overrideable" not in F.scaled_dot_product_attention(q, k, v).grad_fn.name()


def test_math_backend_agrees():
    def attend(q, k, v):
        with sdpa_kernel(SDPBackend.MATH):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    check_call(attend, qkv())


def test_dropout_is_the_same_backward():
    torch.manual_seed(3)
    q, k, v = (x.detach().to(DEVICE).requires_grad_() for x in qkv(torch.float64))
    v = torch.eye(6, 8, dtype=torch.float64, device=DEVICE).expand(2, 4, 6, 8)
    v = v.clone().requires_grad_()
    out = F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
    # With the identity as values the result is the matrix of probabilities itself; its gradient
    # with respect to the values is what was kept.
    (grad,) = torch.autograd.grad(out.sum(), v)
    kept = out[..., :6].detach().sum(2)
    torch.testing.assert_close(grad[..., 0], kept)
    dropped = (out[..., :6] == 0).double().mean().item()
    assert 0.3 < dropped < 0.7


def test_dropout_differs_from_step_to_step():
    q, k, v = (x.detach().to(DEVICE) for x in qkv())
    first = F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
    second = F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
    assert not torch.equal(first.cpu(), second.cpu())
