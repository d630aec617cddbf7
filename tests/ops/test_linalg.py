"""csrc/aten/linalg.cpp against CPU."""

from __future__ import annotations

import pytest
import torch
from harness import DEVICE, check_call, check_errors, check_sample, ops, pairs, samples

OPS = ops(
    "cholesky",
    "cholesky_inverse",
    "cholesky_solve",
    "linalg.cholesky",
    "linalg.cholesky_ex",
    "linalg.solve_triangular",
    "triangular_solve",
)
DTYPES = (torch.float32, torch.float64, torch.complex64)


@pytest.mark.parametrize("op, dtype", pairs(OPS, DTYPES))
def test_values(op, dtype):
    for sample in samples(op, dtype, 5 if dtype == torch.float32 else 2):
        check_sample(op, sample, dtype)


@pytest.mark.parametrize("op", [op for op in OPS if op.error_inputs_func], ids=lambda op: op.name)
def test_errors(op):
    check_errors(op)


def test_not_positive_definite():
    a = torch.diag_embed(torch.tensor([[1.0, -1, 2], [4, 9, 16], [1, 2, -3]]))
    check_call(lambda a: torch.linalg.cholesky_ex(a).info, (a,))
    with pytest.raises(torch.linalg.LinAlgError, match="leading minor of order 2"):
        torch.linalg.cholesky(a[0].to(DEVICE))
    with pytest.raises(torch.linalg.LinAlgError):
        torch.linalg.cholesky_ex(a.to(DEVICE), check_errors=True)


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("unit", [False, True])
def test_triangular_systems(upper, left, unit):
    a = (torch.randn(2, 3, 3) + 4 * torch.eye(3)).requires_grad_()
    b = torch.randn(3, 4) if left else torch.randn(4, 3)
    check_call(
        lambda a, b: torch.linalg.solve_triangular(
            a, b, upper=upper, left=left, unitriangular=unit
        ),
        (a, b.requires_grad_()),
    )
