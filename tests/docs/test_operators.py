"""docs/operators.md is what its generator writes on the torch that it names."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
import torch

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def generator():
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate_operators.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_page_is_current(generator, device):
    text = generator.PAGE.read_text()
    made_for = re.search(r"for torch (\S+)", text)[1]
    if made_for != torch.__version__.partition("+")[0]:
        pytest.skip(f"the page is for torch {made_for}")
    assert text == generator.page(), "run docs/generate_operators.py"


@pytest.mark.parametrize(
    "name, route",
    [
        ("mm", "kernel"),
        ("adaptive_avg_pool2d.out", "derived"),
        ("glu_jvp", "decomposition"),
        ("linear", "kernel"),
        ("dropout", "kernel"),
        ("upsample_bicubic2d", "kernel"),
        ("linalg_eigh", "composite"),
        ("geqrf", "host call"),
        ("mode", "host call"),
        ("cudnn_convolution", "none"),
    ],
)
def test_route(generator, device, name, route):
    assert generator.route_of(name) == route


def test_unknown_operator(generator):
    with pytest.raises(RuntimeError, match="there is no operator aten::no_such"):
        generator.route_of("no_such")
