"""Peak rates of chips, from their makers' data sheets."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Chip:
    """Of one device.

    Attributes:
        flops: dense bfloat16 operations a second.
        bandwidth: of its memory, in bytes a second.
    """

    flops: float
    bandwidth: float


_CHIPS = {
    "v4": Chip(275e12, 1228e9),
    "v5e": Chip(197e12, 819e9),
    "v5p": Chip(459e12, 2765e9),
    "v6e": Chip(918e12, 1640e9),
    "a100": Chip(312e12, 2039e9),
    "h100": Chip(989e12, 3352e9),
    "h200": Chip(989e12, 4800e9),
}


def chip_of(topology: str) -> Chip | None:
    """Of the kind that a topology's name begins with; None for kinds that are not listed."""
    return _CHIPS.get(topology.partition(":")[0].lower())
