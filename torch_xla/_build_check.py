"""Refuses, in words, to load an extension that was compiled against another torch."""

from __future__ import annotations

import re

import torch

_RELEASE = re.compile(r"(\d+)\.(\d+)\.\d+(?:\+(?:cpu|cu\d+|rocm[\d.]+|xpu))?")

_REBUILD = """\
To compile torch_xla against the torch that is installed, in a checkout of its source:
  pip install --no-build-isolation --force-reinstall --no-deps ."""


def require_matching_torch() -> None:
    """Checks the installed torch against the one this build was compiled with.

    To be called before the extension module is imported: torch's C++ interface changes with every
    minor release, and another one would end in an undefined symbol or worse.

    Raises:
        ImportError: if there is no build, or if it was made for another torch. The message names
            both versions and says how to rebuild.
    """
    try:
        from torch_xla import _build_info as build
    except ImportError:
        raise ImportError(
            "torch_xla is not built: this is its source, without the compiled extension.\n"
            + _REBUILD
        ) from None

    if not same_interface(
        build.TORCH_VERSION, build.TORCH_GIT_REV, torch.__version__, torch.version.git_version
    ):
        raise ImportError(
            f"torch_xla {build.TORCH_XLA_VERSION} was compiled for torch {build.TORCH_VERSION}, "
            f"but torch {torch.__version__} is installed.\n"
            f"Either install that one (pip install 'torch=={build.TORCH_VERSION.split('+')[0]}') "
            f"or rebuild.\n" + _REBUILD
        )


def same_interface(built: str, built_rev: str, installed: str, installed_rev: str | None) -> bool:
    """True if code compiled against torch `built` can be loaded by torch `installed`.

    Releases keep their C++ interface within a minor version, whatever they were built for (CPU,
    CUDA, ROCm). Nightly and private builds promise nothing: there the revision has to be the same.
    """
    if built == installed:
        return True
    releases = [_RELEASE.fullmatch(version) for version in (str(built), str(installed))]
    if all(releases):
        return releases[0].groups() == releases[1].groups()
    return built_rev == installed_rev
