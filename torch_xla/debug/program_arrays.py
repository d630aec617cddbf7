"""What the arrays of an optimized program take on each device."""

from __future__ import annotations

import dataclasses

from torch_xla.debug import _hlo as hlo

# Names of xla.PrimitiveType (xla_data.proto).
_TYPES = {1: "pred", 2: "s8", 3: "s16", 4: "s32", 5: "s64", 6: "u8", 7: "u16", 8: "u32", 9: "u64"}
_TYPES |= {10: "f16", 11: "f32", 12: "f64", 15: "c64", 16: "bf16", 18: "c128", 21: "s4", 22: "u4"}
_TYPES |= {19: "f8e5m2", 20: "f8e4m3fn", 23: "f8e4m3b11fnuz", 24: "f8e5m2fnuz", 25: "f8e4m3fnuz"}

_ROOT_COMPUTATION = 6  # HloModuleProto.entry_computation_id
# What makes no array of its own.
_NO_ARRAY = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all"}
_NO_ARRAY |= {"while", "conditional", "call"}


@dataclasses.dataclass(frozen=True)
class Array:
    """An array that one instruction makes.

    Attributes:
        bytes: on each device.
        shape: in HLO's spelling.
        instruction: its name in the optimized program.
        operation: what it is for: the op and the Python line, as far as XLA kept them.
    """

    bytes: int
    shape: str
    instruction: str
    operation: str


def argument_bytes(program: bytes) -> int:
    """Bytes of a program's parameters on each device, without gaps of the layout.

    Args:
        program: a serialized HloModuleProtoWithConfig.
    """
    total = 0
    for module in hlo.every(program, hlo.WITH_CONFIG_MODULE):
        (root,) = hlo.numbers(hlo.by_number(module), _ROOT_COMPUTATION)
        for computation in hlo.every(module, hlo.MODULE_COMPUTATIONS):
            fields = hlo.by_number(computation)
            if fields.get(hlo.COMPUTATION_ID, [0])[0] != root:
                continue
            for instruction in map(hlo.by_number, fields[hlo.COMPUTATION_INSTRUCTIONS]):
                if hlo.text(instruction, hlo.OPCODE) == "parameter":
                    shapes = hlo.array_shapes(instruction[hlo.SHAPE][0])
                    total += sum(map(hlo.shape_bytes, shapes))
    return total


def largest_arrays(program: bytes, count: int = 10) -> list[Array]:
    """The largest arrays of the program's schedule, largest first.

    Args:
        program: a serialized HloModuleProtoWithConfig.
        count: how many at most.
    """
    found = []
    for module in hlo.every(program, hlo.WITH_CONFIG_MODULE):
        computations = [
            hlo.by_number(computation) for computation in hlo.every(module, hlo.MODULE_COMPUTATIONS)
        ]
        instructions = {
            fields.get(hlo.COMPUTATION_ID, [0])[0]: [
                hlo.by_number(raw) for raw in fields.get(hlo.COMPUTATION_INSTRUCTIONS, [])
            ]
            for fields in computations
        }
        # Inside of a fusion nothing is kept in memory; bodies of loops and calls are the program's.
        waiting = hlo.numbers(hlo.by_number(module), _ROOT_COMPUTATION)
        seen: set[int] = set()
        while waiting:
            identity = waiting.pop()
            if identity in seen:
                continue
            seen.add(identity)
            for fields in instructions.get(identity, []):
                opcode = hlo.text(fields, hlo.OPCODE)
                if opcode in ("while", "conditional", "call"):
                    waiting += hlo.numbers(fields, hlo.CALLED)
                if opcode not in _NO_ARRAY:
                    found += _arrays_of(fields)
    found.sort(key=lambda array: -array.bytes)
    return found[:count]


def _arrays_of(fields: dict) -> list[Array]:
    return [
        Array(
            hlo.shape_bytes(shape),
            _shape_text(shape),
            hlo.text(fields, hlo.NAME),
            hlo.operation(fields),
        )
        for shape in hlo.array_shapes(fields[hlo.SHAPE][0])
    ]


def _shape_text(fields: dict) -> str:
    number = fields.get(hlo.SHAPE_TYPE, [0])[0]
    sizes = ",".join(map(str, hlo.numbers(fields, hlo.SHAPE_DIMENSIONS)))
    return f"{_TYPES.get(number, f'type {number}')}[{sizes}]"
