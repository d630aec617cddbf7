"""Examples in docstrings run as they stand."""

import doctest
import importlib
import pkgutil

import pytest

import torch_xla

MODULES = sorted(
    info.name
    for info in pkgutil.walk_packages(torch_xla.__path__, "torch_xla.")
    if not info.name.endswith("_XLAC")
)


@pytest.mark.parametrize("name", ["torch_xla", *MODULES])
def test_examples_of(name, device):
    module = importlib.import_module(name)
    assert doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE).failed == 0


@pytest.mark.parametrize("name", ["torch_xla", *MODULES])
def test_public_names_exist_and_are_explained(name):
    module = importlib.import_module(name)
    assert module.__doc__, "a module says what it is for"
    for public in getattr(module, "__all__", ()):
        assert hasattr(module, public)
