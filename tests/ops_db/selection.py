"""Which of the thousands of cases a run takes, and which are passed over for what reason.

`TORCH_XLA_TEST_DB` decides: unset, a fixed sample of about one in `SAMPLE_OF` (of more where a case
takes no time); `full`, all of them; `2/8`, the second of eight parts of all of them.
"""

from __future__ import annotations

import fnmatch
import os
import zlib

import pytest
from exceptions import PASSED_OVER

VARIABLE = "TORCH_XLA_TEST_DB"
SAMPLE_OF = 120  # a second each


def _share(sample_of: int) -> tuple[int, int]:
    """(which, of how many) parts of all cases this run takes, counted from 0."""
    wanted = os.environ.get(VARIABLE, "")
    if wanted in ("", "sample"):
        return 0, sample_of
    if wanted == "full":
        return 0, 1
    part, _, parts = wanted.partition("/")
    if not (part.isdigit() and parts.isdigit() and 1 <= int(part) <= int(parts)):
        raise ValueError(f"{VARIABLE}={wanted!r}: expected 'sample', 'full' or a part like '2/8'")
    return int(part) - 1, int(parts)


def reason_to_pass_over(variant: str, name: str, dtype: str) -> str | None:
    """The reason for which the table of exceptions leaves a case out, if it does."""
    for pattern, dtypes, variants, reason in PASSED_OVER:
        if (
            fnmatch.fnmatchcase(name, pattern)
            and (dtypes == "*" or dtype in dtypes.split())
            and (variants == "*" or variant in variants.split())
        ):
            return reason
    return None


def take(variant: str, candidates: list[tuple], sample_of: int = SAMPLE_OF) -> list:
    """pytest parameters for the part of `candidates`, (entry, name, dtype), that this run takes.

    Which part a case belongs to follows from its name alone, so that it stays there when others
    come or go.
    """
    part, parts = _share(sample_of)
    chosen = []
    for entry, name, dtype in candidates:
        short = str(dtype).removeprefix("torch.")
        identity = f"{name}-{short}" if dtype is not None else name
        if zlib.crc32(f"{variant}-{identity}".encode()) % parts != part:
            continue
        reason = reason_to_pass_over(variant, name, short)
        marks = [pytest.mark.skip(reason=reason)] if reason else []
        chosen.append(pytest.param(entry, dtype, id=identity, marks=marks))
    return chosen
