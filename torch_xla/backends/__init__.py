"""Settings of the compiler."""

from __future__ import annotations

from torch_xla._extension import _XLAC


def set_mat_mul_precision(precision: str) -> None:
    """Chooses how exactly float32 matrix products and convolutions are computed.

    Args:
        precision: "default", "high" or "highest". TPUs compute with 1, 3 or 6 bfloat16 passes;
            devices with full float32 units do the same for all three.

    Raises:
        RuntimeError: for any other word.
    """
    _XLAC._xla_set_mat_mul_precision(precision)


def get_mat_mul_precision() -> str:
    """What `set_mat_mul_precision` chose; "default" at first."""
    return _XLAC._xla_get_mat_mul_precision()
