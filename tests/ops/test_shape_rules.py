"""Kernels' own rules for sizes, dtypes and strides against torch's (`debug.check_shapes`)."""

from __future__ import annotations

import importlib.util
import itertools
import sys
import warnings
from pathlib import Path

import pytest
import torch
from harness import DEVICE, _arguments, _gradients, differentiable
from torch.testing._internal.common_methods_invocations import (
    binary_ufuncs,
    op_db,
    reduction_ops,
    unary_ufuncs,
)

from torch_xla.debug import ShapeMismatch, check_shapes

_ZOO = Path(__file__).parent.parent / "models" / "zoo.py"
_zoo_spec = importlib.util.spec_from_file_location("zoo_of_shapes", _ZOO)
_zoo = importlib.util.module_from_spec(_zoo_spec)
sys.modules[_zoo_spec.name] = _zoo  # dataclasses look their module up
_zoo_spec.loader.exec_module(_zoo)
MODELS = _zoo.CASES

# The families whose kernels have rules of their own, and others that no model here uses.
OTHERS = [
    "addcmul",
    "addmm",
    "baddbmm",
    "bmm",
    "cat",
    "clamp",
    "constant_pad_nd",
    "cumsum",
    "gather",
    "index_select",
    "index_put",
    "linalg.solve_triangular",
    "log_softmax",
    "masked_fill",
    "native_dropout_backward",
    "native_layer_norm",
    "nn.functional.conv1d",
    "nn.functional.embedding",
    "nn.functional.gelu",
    "nn.functional.glu",
    "nn.functional.leaky_relu",
    "nn.functional.max_pool2d",
    "nn.functional.nll_loss",
    "nn.functional.pad",
    "nn.functional.softplus",
    "permute",
    "scatter_add",
    "select_scatter",
    "softmax",
    "sort",
    "stack",
    "topk",
    "tril",
    "where",
    "nn.functional.scaled_dot_product_attention",
    "as_strided",
    "expand",
    "reshape",
    "unfold",
]
OPS = [op for op in (*unary_ufuncs, *binary_ufuncs, *reduction_ops) if "jiterator" not in op.name]
OPS += [op for op in op_db if op.name in OTHERS]


@pytest.mark.parametrize("name", MODELS)
def test_models(name):
    case = MODELS[name]()
    model = case.model.to(DEVICE)
    batch = {key: value.to(DEVICE) for key, value in case.batch.items()}
    optimizer = torch.optim.AdamW(model.parameters())
    with check_shapes() as checked, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        case.loss(model, batch).backward()
        optimizer.step()
    assert checked.compared.total() > 30


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.formatted_name)
def test_operators(op):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for dtype in (torch.float32, torch.int64):
            if dtype in op.supported_dtypes("cpu"):
                # Not op.sample_inputs, which walks the stack for 0.2 s to find the test's name.
                every = op.sample_inputs_func(op, "cpu", dtype, differentiable(op, dtype))
                for sample in itertools.islice(every, 0, 7, 3):
                    _check(op, sample, dtype)


def _check(op, sample, dtype):
    args, kwargs = _arguments(sample, DEVICE)
    try:
        with check_shapes():
            result = op(*args, **kwargs)
            if differentiable(op, dtype):
                _gradients(sample.output_process_fn_grad(result), (args, kwargs))
    except ShapeMismatch:
        raise
    except (RuntimeError, TypeError, ValueError):
        pass  # Whether an operator works at all is for other tests.


def test_strides_that_follow_the_arguments():
    x = torch.randn(5, 10, 7, 2, device=DEVICE).movedim(1, 3)[..., 0, :]
    a = torch.eye(3, dtype=torch.complex64, device=DEVICE).T.conj()
    with check_shapes():
        torch.nn.functional.pad(x, (0, -4))
        torch.linalg.solve_triangular(a, torch.ones_like(a), upper=True)
        torch.ops.aten.native_dropout_backward(x.int(), x > 0, 2.0)


def test_what_is_wrong_is_named():
    """A kernel with a wrong rule, and what the error says of it."""
    library = torch.library.Library("shape_rules", "DEF")
    library.define("halve(Tensor x, int n) -> Tensor")
    library.impl("halve", lambda x, n: x[::n].contiguous(), "XLA")
    library.impl("halve", lambda x, n: x.new_empty(x.size(0) // n), "Meta")
    library.impl("halve", lambda x, n: x[: x.size(0) // n].clone(), "CPU")
    x = torch.arange(5.0, device=DEVICE)
    with check_shapes() as checked:
        torch.ops.shape_rules.halve(x[:4], 2)
        message = r"halve.*\(float32\[5\] strides \[1\], 2\).*float32\[3\].*float32\[2\]"
        with pytest.raises(ShapeMismatch, match=message):
            torch.ops.shape_rules.halve(x, 2)
    assert checked.compared["shape_rules.halve.default"] == 2


def test_what_cannot_be_compared_is_counted():
    x = torch.tensor([0.0, 1, 2], device=DEVICE)
    with check_shapes() as checked:
        x.nonzero()
        x.log_()
    assert checked.skipped == {"aten.nonzero.default": 1}
    assert checked.compared == {"aten.log_.default": 1}


def test_of_a_whole_process(run_python):
    done = run_python(
        """
        import torch, torch_xla
        torch.ops.aten.log_softmax(torch.ones(2, 3, device="xla"), 1)
        library = torch.library.Library("aten", "IMPL")
        library.impl("cosh", lambda x: x.new_empty(7), "XLA", allow_override=True)
        torch.cosh(torch.ones(2, device="xla"))
        """,
        TORCH_XLA_CHECK_SHAPES="1",
    )
    assert done.returncode == 1
    assert "ShapeMismatch: aten.cosh.default(float32[2] strides [1])" in done.stderr
