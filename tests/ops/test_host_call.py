"""csrc/aten/host_call.cpp against CPU: torch's own CPU kernels inside compiled programs."""

from __future__ import annotations

import itertools

import pytest
import torch
from harness import (
    DEVICE,
    check_call,
    check_errors,
    check_sample,
    check_variants,
    differentiable,
    ops,
    pairs,
)

import torch_xla
import torch_xla.core.xla_model as xm
from torch_xla.debug import check_shapes

LINALG = ops(
    "geqrf",
    "linalg.cond",
    "linalg.det",
    "linalg.eig",
    "linalg.eigh",
    "linalg.eigvals",
    "linalg.eigvalsh",
    "linalg.householder_product",
    "linalg.inv",
    "linalg.inv_ex",
    "linalg.ldl_factor",
    "linalg.ldl_factor_ex",
    "linalg.ldl_solve",
    "linalg.lu",
    "linalg.lu_factor",
    "linalg.lu_factor_ex",
    "linalg.lu_solve",
    "linalg.matrix_power",
    "linalg.matrix_rank",
    "linalg.pinv",
    "linalg.qr",
    "linalg.slogdet",
    "linalg.solve",
    "linalg.solve_ex",
    "linalg.svd",
    "linalg.svdvals",
    "linalg.tensorinv",
    "linalg.tensorsolve",
    "logdet",
    "lu",
    "lu_solve",
    "lu_unpack",
    "matrix_exp",
    "ormqr",
    "svd",
)
OTHERS = ops(
    "_segment_reduce",
    "cdist",
    "grid_sampler_2d",
    "grid_sampler_3d",
    "histc",
    "histogram",
    "histogramdd",
    "mode",
    "nn.functional.ctc_loss",
    "nn.functional.fractional_max_pool2d",
    "nn.functional.fractional_max_pool3d",
    "nn.functional.pdist",
    "special.airy_ai",
)


def few(op, dtype, limit):
    # Not op.sample_inputs, which walks the stack for 0.2 s to find the test's name.
    every = op.sample_inputs_func(op, "cpu", dtype, differentiable(op, dtype))
    return itertools.islice(every, 0, 5 * limit, 5)


@pytest.mark.parametrize("op, dtype", pairs(LINALG, (torch.float32, torch.complex64)))
def test_linear_algebra(op, dtype):
    for sample in few(op, dtype, 2 if dtype == torch.float32 else 1):
        check_sample(op, sample, dtype)


@pytest.mark.parametrize("op, dtype", pairs(OTHERS, (torch.float32, torch.bfloat16, torch.int64)))
def test_others(op, dtype):
    if "segment_reduce" in op.name and dtype == torch.bfloat16:
        return  # the host computes it: its lengths, which the kernel checks, are not known
    drawn = "fractional" in op.name  # regions are drawn, by the device's own generator
    for sample in few(op, dtype, 2 if dtype == torch.float32 else 1):
        check_sample(op, sample, dtype, values=not drawn)


@pytest.mark.parametrize(
    "op", [op for op in LINALG + OTHERS if op.supports_out], ids=lambda op: op.formatted_name
)
def test_variants(op):
    for sample in few(op, torch.float32, 1):
        check_variants(op, sample, torch.float32)


@pytest.mark.parametrize(
    "op", [op for op in LINALG + OTHERS if op.error_inputs_func], ids=lambda op: op.formatted_name
)
def test_errors(op):
    check_errors(op)


def test_dtypes_are_checked_at_the_call():
    x = torch.eye(3, dtype=torch.float16, device=DEVICE)
    with pytest.raises(NotImplementedError, match="not implemented for 'Half'"):
        torch.linalg.svd(x)
    with pytest.raises(RuntimeError, match="not implemented for 'Bool'"):
        torch.histc(torch.ones(3, dtype=torch.bool, device=DEVICE), 3)


@pytest.mark.parametrize(
    "function",
    [
        torch.linalg.inv,
        lambda a: torch.linalg.inv_ex(a, check_errors=True),
        lambda a: torch.linalg.solve(a, a),
        torch.linalg.cholesky,
        torch.linalg.lu_factor,
        lambda a: torch.linalg.ldl_factor_ex(a, check_errors=True),
    ],
)
def test_singular(function, metrics):
    raised = []
    for device in ("cpu", DEVICE):
        a = torch.tensor([[1.0, 2], [0, 0]], device=device)
        a = a @ a.new_tensor([[1.0, 0], [0, 0]])
        with pytest.raises(RuntimeError) as error:
            function(a)
        raised.append((error.type, str(error.value)))
    assert raised[0] == raised[1]
    assert metrics.executed_fallback_ops() == []


def test_what_only_the_kernel_knows_surfaces_at_the_read(metrics):
    a = torch.full((3, 3), float("nan"), device=DEVICE)
    other = torch.ones(2, device=DEVICE)
    torch_xla.sync()
    values = torch.linalg.eigvalsh(a)
    where = r"aten::_linalg_eigh at .*test_host_call.py:\d+: linalg.eigh: .*failed to converge"
    with pytest.raises(torch.linalg.LinAlgError, match=where):
        values.cpu()
    assert (other + 1).tolist() == [2, 2]


def test_the_program_stays_whole(metrics):
    weights = torch.randn(4, 4, device=DEVICE).add_(4 * torch.eye(4, device=DEVICE))
    weights.requires_grad_()
    for step in range(4):
        loss = torch.logdet(weights @ weights.T) + torch.linalg.svdvals(weights).sum()
        (grad,) = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            weights -= 0.01 * (step + 1) * grad
        torch_xla.sync()
    assert metrics.executed_fallback_ops() == []
    assert metrics.counter_value("xla::host_call._linalg_svd") == 4
    assert metrics.metric_data("ExecuteTime")[0] == 4
    assert metrics.counter_value("UncachedCompile") <= 2


def test_the_callers_state_is_not_the_kernels():
    """Autocast, inference and dispatch modes of whoever runs the program do not reach in."""
    x = torch.randn(4, 4)
    expected = torch.linalg.inv(x)
    with torch.autocast("cpu", torch.bfloat16), torch.inference_mode(), check_shapes():
        got = torch.linalg.inv_ex(x.to(DEVICE)).inverse
        torch_xla.sync()
    torch.testing.assert_close(got.cpu(), expected)


def test_many_at_once():
    """Kernels with threads of their own, called from a pool's threads at the same time."""
    x = torch.randn(12, 150, 150)
    own = x.to(DEVICE)
    results = [
        kernel(own[i] @ own[i].T / 150)
        for i in range(12)
        for kernel in (torch.linalg.eigvalsh, torch.linalg.svdvals, torch.logdet)
    ]
    torch_xla.sync()
    expected = torch.linalg.eigvalsh(x[11] @ x[11].T / 150)
    torch.testing.assert_close(results[-3].cpu(), expected, rtol=1e-3, atol=1e-3)


def test_from_the_cache_on_disk(run_python, tmp_path):
    program = """
        import torch, torch_xla
        import torch_xla.debug.metrics as met
        x = torch.tensor([[2.0, 0], [0, 4]], device="xla")
        print(torch.linalg.inv_ex(x).inverse.tolist(), met.executed_fallback_ops())
        print((met.counter_value("PersistentCacheMiss") or 0) > 0)
        """
    for missed in (True, False):
        done = run_python(
            program, TORCH_XLA_PERSISTENT_CACHE=None, XLA_PERSISTENT_CACHE_PATH=str(tmp_path)
        )
        assert done.stdout == f"[[0.5, 0.0], [0.0, 0.25]] []\n{missed}\n", done.stderr


def test_the_call_can_be_read():
    text = xm.get_stablehlo([torch.mode(torch.ones(2, 3, device=DEVICE)).values])
    assert 'call_target_name = "torch_xla.aten"' in text
    assert 'op = "aten::mode"' in text


@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd", "gelss", None])
def test_least_squares(driver):
    wide, tall = torch.randn(2, 3, 5), torch.randn(5, 3)
    check_call(
        lambda a, b: torch.linalg.lstsq(a, b, driver=driver).solution,
        (wide, torch.randn(2, 3, 4)),
    )
    # How many residuals there are depends on the rank, which only `gels` takes for granted.
    check_call(
        lambda a, b: torch.linalg.lstsq(a, b, driver=driver)[:2],
        (tall, torch.randn(5, 4)),
        native=driver == "gels",
        strides=driver == "gels",
    )


def test_fractional_pooling():
    image, volume = torch.randn(2, 3, 7, 8), torch.randn(1, 2, 6, 6, 7)
    for pool, x, samples in (
        (torch.nn.functional.fractional_max_pool2d, image, torch.rand(2, 3, 2)),
        (torch.nn.functional.fractional_max_pool3d, volume, torch.rand(1, 2, 3)),
    ):
        check_call(
            lambda x, s, pool=pool: pool(x, 2, [3] * (x.dim() - 2), _random_samples=s),
            (x.requires_grad_(), samples),
        )


def test_numbers_and_lists_arrive():
    x = torch.tensor([0.5, 1.5, 1.7, 3.0])
    check_call(lambda x: torch.histc(x, 4, 0, 4), (x,))
    check_call(lambda x: torch.histogram(x, 3, range=(0.0, 3.0), density=True), (x,))
    check_call(lambda x: torch.histogramdd(x.reshape(2, 2), [2, 3]).bin_edges, (x,))
    check_call(lambda x: torch.histogram(x, torch.tensor([0.0, 1, 2]).to(x.device)).hist, (x,))


def test_nothing_to_compute():
    for shape in ((0, 3, 3), (2, 0, 0), (0, 0)):
        check_call(lambda x: torch.linalg.inv_ex(x).inverse, (torch.zeros(shape),))
        check_call(torch.linalg.svdvals, (torch.zeros(shape),))
        check_call(lambda x: torch.linalg.cholesky_ex(x).L, (torch.zeros(shape),))


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32])
def test_results_of_views_are_laid_out_as_on_cpu(dtype):
    """What has gaps or repeats keeps the order of its dimensions, whatever its dtype."""
    x = (3 * torch.randn(4, 3, 6)).to(dtype)
    for view in (
        lambda x: x.permute(2, 0, 1)[::2],
        lambda x: x.transpose(0, 2)[:, :1].expand(6, 5, 4),
    ):
        check_call(lambda x, view=view: torch.special.airy_ai(view(x)), (x,))
