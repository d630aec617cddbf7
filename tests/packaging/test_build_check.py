"""A build that meets another torch says so, at import, in words."""

import re
from types import SimpleNamespace

import pytest
import torch

import torch_xla
from torch_xla import _build_check, version


@pytest.mark.parametrize(
    ("built", "installed", "same"),
    [
        ("2.13.0+cpu", "2.13.0+cpu", True),
        ("2.13.0+cpu", "2.13.0+cu130", True),
        ("2.13.0", "2.13.1+rocm7.0", True),
        ("2.13.0+cpu", "2.14.0+cpu", False),
        ("2.13.0", "3.13.0", False),
        ("2.13.0", "2.13.0a0+gitdeadbee", False),
        ("2.14.0.dev20260901+cpu", "2.14.0.dev20260902+cpu", False),
    ],
)
def test_which_torch_fits(built, installed, same):
    assert _build_check.same_interface(built, "rev1", installed, "rev2") is same


def test_private_builds_fit_by_revision():
    assert _build_check.same_interface("2.13.0a0+git1", "rev", "2.13.0", "rev")


def test_installed_torch_fits():
    _build_check.require_matching_torch()


def test_another_torch_is_refused(monkeypatch):
    other = SimpleNamespace(
        TORCH_XLA_VERSION="3.0.0", TORCH_VERSION="1.7.0+cpu", TORCH_GIT_REV="0" * 40
    )
    monkeypatch.setattr(torch_xla, "_build_info", other, raising=False)
    with pytest.raises(ImportError) as error:
        _build_check.require_matching_torch()
    message = str(error.value)
    assert "compiled for torch 1.7.0+cpu" in message
    assert f"torch {torch.__version__} is installed" in message
    assert "pip install 'torch==1.7.0'" in message
    assert "--no-build-isolation" in message


def test_version_names_that_clients_read():
    assert torch_xla.__version__ == version.__version__
    assert re.fullmatch(r"\d+\.\d+\.\d+", version.__version__)
    assert version.__torch_gitrev__ == torch.version.git_version
