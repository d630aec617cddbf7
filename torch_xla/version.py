"""Versions of this build, under the names that clients read."""

from torch_xla import _build_info

__version__: str = _build_info.TORCH_XLA_VERSION
__xla_gitrev__: str = _build_info.TORCH_XLA_GIT_REV
__torch_gitrev__: str = _build_info.TORCH_GIT_REV
