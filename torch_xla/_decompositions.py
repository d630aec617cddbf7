"""Which operators run through a decomposition in Python: torch's own, or one of ours.

The C++ fallback asks here the first time it meets an operator that has no XLA kernel and is not
the in-place or out= form of one that has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torch_xla._internal import decompositions as _own_decompositions

# Decompositions that are no use on a device that traces: they read values back, or come back to
# the operator itself. The host does these in one trip.
_EXCLUDED = frozenset(
    {
        "aten::item",
        "aten::equal",
        "aten::allclose",
        "aten::nonzero",
        "aten::nonzero_static",
        "aten::masked_select",
        "aten::_unique2",
        "aten::bincount",
        "aten::_ctc_loss",
    }
)


def lookup(name: str, overload: str) -> Callable[..., Any] | None:
    """The decomposition of an operator, or None where the host has to compute it.

    Args:
        name: the operator's name with its namespace, ``"aten::addcmul"``.
        overload: the name of the overload, ``""`` for the default one.
    """
    own = _own_decompositions.TABLE.get(name + (f".{overload}" if overload else ""))
    if own is not None:
        return own
    if name in _EXCLUDED:
        return None
    from torch._decomp import decomposition_table  # slow to import, so only on demand

    namespace, _, base = name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), base, None)
    operator = getattr(packet, overload or "default", None)
    return decomposition_table.get(operator)
