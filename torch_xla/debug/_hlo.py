"""Reads OpenXLA's HLO messages, as far as reports on programs need them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

# Field numbers of OpenXLA's hlo.proto and xla_data.proto, as far as they are read here.
WITH_CONFIG_MODULE = 1
MODULE_COMPUTATIONS = 3
COMPUTATION_INSTRUCTIONS, COMPUTATION_ID, COMPUTATION_ROOT = 2, 5, 6
NAME, OPCODE, SHAPE, METADATA, GROUPS = 1, 2, 3, 7, 49
CHANNEL, ID, CALLED = 26, 35, 38
SOURCE_TARGET_PAIRS, DEVICE_LIST, IOTA_GROUPS, MESH_GROUPS = 52, 87, 92, 93
METADATA_OP_NAME = 2
SHAPE_TYPE, SHAPE_DIMENSIONS, SHAPE_TUPLE = 2, 3, 4

# Bits of an element by xla.PrimitiveType; 8 where it is not listed (the 8-bit floats).
BITS = {1: 8, 2: 8, 3: 16, 4: 32, 5: 64, 6: 8, 7: 16, 8: 32, 9: 64, 10: 16, 11: 32, 12: 64}
BITS |= {15: 64, 16: 16, 18: 128, 21: 4, 22: 4}


def array_shapes(shape: bytes) -> Iterator[dict[int, list[Any]]]:
    fields = by_number(shape)
    if SHAPE_TUPLE in fields:
        for part in fields[SHAPE_TUPLE]:
            yield from array_shapes(part)
    else:
        yield fields


def shape_bytes(fields: dict[int, list[Any]]) -> int:
    bits = BITS.get(fields.get(SHAPE_TYPE, [0])[0], 8)
    return math.prod(numbers(fields, SHAPE_DIMENSIONS)) * bits // 8


def operation(instruction: dict[int, list[Any]]) -> str:
    """What an instruction is for: the op and the Python line, as far as XLA kept them."""
    if METADATA not in instruction:
        return ""
    return text(by_number(instruction[METADATA][0]), METADATA_OP_NAME)


# --- Protocol buffers' wire format (protobuf.dev/programming-guides/encoding) ---


def by_number(message: bytes) -> dict[int, list[Any]]:
    fields: dict[int, list[Any]] = {}
    at = 0
    while at < len(message):
        tag, at = varint(message, at)
        wire_type = tag & 7
        if wire_type == 0:
            value, at = varint(message, at)
        elif wire_type == 2:
            size, at = varint(message, at)
            value, at = message[at : at + size], at + size
        else:
            size = 8 if wire_type == 1 else 4
            value, at = message[at : at + size], at + size
        fields.setdefault(tag >> 3, []).append(value)
    return fields


def every(message: bytes, number: int) -> list[Any]:
    return by_number(message).get(number, [])


def numbers(fields: dict[int, list[Any]], number: int) -> list[int]:
    """Of a repeated field, packed or not."""
    result = []
    for value in fields.get(number, []):
        if isinstance(value, int):
            result.append(value)
            continue
        at = 0
        while at < len(value):
            one, at = varint(value, at)
            result.append(one)
    return result


def text(fields: dict[int, list[Any]], number: int) -> str:
    return fields[number][0].decode(errors="replace") if number in fields else ""


def varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
