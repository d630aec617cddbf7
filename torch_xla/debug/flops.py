"""Operations of a program's matrix multiplications and convolutions, which nearly all are."""

from __future__ import annotations

import math
import re

_DOT = re.compile(
    r"stablehlo\.dot_general.*?lhs_contracting_dimensions = \[([\d, ]*)\]"
    r".*: \(tensor<([^>]*)>, tensor<[^>]*>\) -> tensor<([^>]*)>"
)
_CONVOLUTION = re.compile(
    r"stablehlo\.convolution.*?\]x\[([^\]]*)\]->"
    r".*: \(tensor<[^>]*>, tensor<([^>]*)>\) -> tensor<([^>]*)>"
)


def matmul_flops(stablehlo: str) -> int:
    """Multiplications and additions of all `dot_general` and `convolution` of a module's text.

    What is inside of a loop counts once. The formulas follow StableHLO's specification of the two:
    each element of the result is a sum of products over the contracted dimensions, or over the
    kernel's dimensions other than that of output features.
    """
    total = 0
    for line in stablehlo.splitlines():
        if match := _DOT.search(line):
            sizes = _sizes(match[2])
            contracted = [sizes[int(axis)] for axis in match[1].split(",") if axis.strip()]
            total += 2 * math.prod(_sizes(match[3])) * math.prod(contracted)
        elif match := _CONVOLUTION.search(line):
            axes = [axis.strip() for axis in match[1].split(",")]
            kernel = _sizes(match[2])
            del kernel[axes.index("o")]
            total += 2 * math.prod(_sizes(match[3])) * math.prod(kernel)
    return total


def _sizes(tensor: str) -> list[int]:
    """Of the inside of a tensor type, 4x8xf32."""
    return [int(size) for size in tensor.split("x")[:-1]]
