"""Where compiled programs are kept for later processes.

`torch_xla._settings` says which environment variables decide; `docs/guide/saving.md` tells users.
"""

from __future__ import annotations

import os
from pathlib import Path

from torch_xla._extension import _XLAC
from torch_xla.version import __version__

# What the default folder keeps: loading such a program takes 2 to 3 ms.
_MIN_SECONDS = 0.1

_enabled = True
_limits: dict[str, float] = {}


def default_folder() -> Path | None:
    """The user's own: `torch_xla/programs` below `XDG_CACHE_HOME` or `~/.cache`.

    None where the user has no home. A relative `XDG_CACHE_HOME` does not count, as the XDG Base
    Directory Specification asks (specifications.freedesktop.org/basedir-spec, version 0.8).
    """
    caches = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not caches.is_absolute():
        try:
            caches = Path.home() / ".cache"
        except RuntimeError:
            return None
    return caches / "torch_xla" / "programs" if caches.is_absolute() else None


def configure(
    enabled: bool, folder: str, readonly: bool, max_mib: float, min_seconds: float | None
) -> None:
    """Chooses the cache of this process, at import. Touches no file unless `folder` is given.

    Args:
        enabled: False turns every cache off, also those that `use` names later.
        folder: named by the user; "" for the default.
        readonly: write nothing into it.
        max_mib: size of all its files, in MiB, that makes the least recently used ones leave.
        min_seconds: programs that compile faster are not written. None for 0.1 in the default
            folder and 0 in one that the user names.

    Raises:
        ValueError: if a limit is negative.
        RuntimeError: if `folder` cannot be made.
    """
    global _enabled
    if not max_mib >= 0 or (min_seconds is not None and not min_seconds >= 0):
        raise ValueError(
            "limits of the compilation cache must not be negative, got "
            f"{max_mib} MiB and {min_seconds} seconds"
        )
    _enabled = enabled
    _limits["max_bytes"] = int(min(max_mib, 2**40) * 2**20)
    if min_seconds is not None:
        _limits["min_seconds"] = min_seconds
    if folder:
        use(folder, readonly)
    elif enabled and (own := default_folder()) is not None:
        _set(own, readonly, is_private=True)


def use(folder: str | os.PathLike[str], readonly: bool = False) -> None:
    """Uses this folder from here on, unless caches are turned off.

    Raises:
        RuntimeError: if the folder cannot be made.
    """
    if _enabled:
        _set(folder, readonly, is_private=False)


def _set(folder: str | os.PathLike[str], readonly: bool, is_private: bool) -> None:
    limits = {"min_seconds": _MIN_SECONDS if is_private else 0, **_limits}
    _XLAC._set_persistent_cache(
        os.fspath(folder), readonly, is_private=is_private, version=__version__, **limits
    )
