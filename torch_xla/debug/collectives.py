"""The collectives that XLA put into a partitioned program.

`collectives()` lists those of the program that ran last, `report()` prints them as a table: kind,
bytes, mesh axes and the Python line of the operation that called for them. `memory()` says what the
program needs on each device.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from torch_xla._extension import _XLAC

# Field numbers of OpenXLA's hlo.proto and xla_data.proto, as far as they are read here.
_WITH_CONFIG_MODULE = 1
_MODULE_COMPUTATIONS = 3
_COMPUTATION_INSTRUCTIONS = 2
_NAME, _OPCODE, _SHAPE, _METADATA, _GROUPS = 1, 2, 3, 7, 49
_SOURCE_TARGET_PAIRS, _DEVICE_LIST, _IOTA_GROUPS, _MESH_GROUPS = 52, 87, 92, 93
_METADATA_OP_NAME = 2
_SHAPE_TYPE, _SHAPE_DIMENSIONS, _SHAPE_TUPLE = 2, 3, 4

# What a line of the table has room for.
_LONGEST_GROUPS, _LONGEST_OPERATION = 48, 120

_KINDS = (
    "all-gather",
    "all-reduce",
    "all-to-all",
    "collective-broadcast",
    "collective-permute",
    "ragged-all-to-all",
    "reduce-scatter",
)

# Bits of an element by xla.PrimitiveType; 8 where it is not listed (the 8-bit floats).
_BITS = {1: 8, 2: 8, 3: 16, 4: 32, 5: 64, 6: 8, 7: 16, 8: 32, 9: 64, 10: 16, 11: 32, 12: 64}
_BITS |= {15: 64, 16: 16, 18: 128, 21: 4, 22: 4}


@dataclasses.dataclass(frozen=True)
class Collective:
    """One collective operation of a program.

    Attributes:
        kind: "all-gather", "all-reduce", "reduce-scatter", ... as HLO names them.
        bytes: size of the result on each device.
        groups: partitions that talk to each other, group by group; for a permutation the pairs of
            source and target. Empty where all take part.
        operation: what called for it: the op and the Python line, as far as XLA kept them.
    """

    kind: str
    bytes: int
    groups: tuple[tuple[int, ...], ...]
    operation: str

    def axes(self, axis_names: Sequence[str], shape: Sequence[int]) -> tuple[str, ...] | None:
        """The axes of a mesh along which the groups talk; None if they are none of the mesh.

        Args:
            axis_names: of the mesh, whose devices are in the order of the partitions.
            shape: its sizes.
        """
        if self.kind == "collective-permute":
            return None
        mine = {frozenset(group) for group in self.groups} or {frozenset(range(math.prod(shape)))}
        indices = range(len(shape))
        for count in range(len(shape) + 1):
            for chosen in itertools.combinations(indices, count):
                if any(shape[axis] == 1 for axis in chosen):
                    continue
                if mine == _groups_along(chosen, shape):
                    return tuple(axis_names[axis] for axis in chosen)
        return None


def collectives(program: bytes | None = None) -> list[Collective]:
    """The collectives of a program, in no order.

    Args:
        program: a serialized HloModuleProtoWithConfig, as a plugin gives its optimized programs; by
            default that of the program which ran last.

    Raises:
        RuntimeError: no program ran yet, or the plugin gives it in another format.
    """
    if program is None:
        last = _last_program()
        if last["format"] != "hlo_with_config":
            raise RuntimeError(f"collectives: a program in the format {last['format']!r}")
        program = last["program"]
    result = []
    for module in _all(program, _WITH_CONFIG_MODULE):
        for computation in _all(module, _MODULE_COMPUTATIONS):
            for instruction in _all(computation, _COMPUTATION_INSTRUCTIONS):
                if found := _collective(instruction):
                    result.append(found)
    return result


def memory() -> dict[str, int]:
    """Bytes on each device that the program which ran last needs, by kind.

    Returns:
        "arguments", "results", "shared" (of the results, in memory that arguments had),
        "temporaries" and "code"; nothing where the plugin does not say.

    Raises:
        RuntimeError: no program ran yet.
    """
    last = _last_program()
    names = {
        "arguments": "argument_bytes",
        "results": "output_bytes",
        "shared": "alias_bytes",
        "temporaries": "temp_bytes",
        "code": "code_bytes",
    }
    return {name: last[key] for name, key in names.items() if key in last}


def report(
    axis_names: Sequence[str] = (), shape: Sequence[int] = (), program: bytes | None = None
) -> str:
    """A table of `collectives()`; equal ones share a row.

    Args:
        axis_names: of the mesh, for a column that names the axes instead of the partitions.
        shape: its sizes.
        program: as for `collectives()`.
    """
    return table(collectives(program), axis_names, shape)


def table(
    found: Iterable[Collective], axis_names: Sequence[str] = (), shape: Sequence[int] = ()
) -> str:
    """The same of collectives that are there already."""
    rows: dict[tuple[str, str, str], list[int]] = {}
    for one in found:
        axes = one.axes(axis_names, shape) if axis_names else None
        where = "x".join(axes) if axes else _groups_text(one.groups)
        row = rows.setdefault((one.kind, where, _short(one.operation)), [0, 0])
        row[0] += 1
        row[1] += one.bytes
    if not rows:
        return "no collectives\n"
    lines = [("collective", "count", "bytes", "along", "for")]
    lines += [
        (kind, str(count), f"{size:,}", where, operation)
        for (kind, where, operation), (count, size) in sorted(
            rows.items(), key=lambda item: -item[1][1]
        )
    ]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = (
        "  ".join(
            cell.rjust(width) if 0 < place < 3 else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )
    return "".join(line.rstrip() + "\n" for line in padded)


def _last_program() -> dict[str, Any]:
    last = _XLAC._xla_last_program()
    if last is None:
        raise RuntimeError("no program has run, or the one that ran last is gone")
    return last


def _groups_along(chosen: Sequence[int], shape: Sequence[int]) -> set[frozenset[int]]:
    groups: dict[tuple[int, ...], set[int]] = {}
    for partition, place in enumerate(itertools.product(*map(range, shape))):
        rest = tuple(at for axis, at in enumerate(place) if axis not in chosen)
        groups.setdefault(rest, set()).add(partition)
    return {frozenset(group) for group in groups.values()}


def _groups_text(groups: tuple[tuple[int, ...], ...]) -> str:
    if not groups:
        return "all"
    text = "".join("{" + ",".join(map(str, group)) + "}" for group in groups)
    if len(text) <= _LONGEST_GROUPS:
        return text
    sizes = sorted({len(group) for group in groups})
    return f"{len(groups)} groups of {' or '.join(map(str, sizes))}"


def _short(operation: str) -> str:
    """What XLA merged from many operations names them all."""
    if len(operation) <= _LONGEST_OPERATION:
        return operation
    return operation[:_LONGEST_OPERATION] + " ..."


def _collective(instruction: bytes) -> Collective | None:
    fields = _by_number(instruction)
    opcode = _text(fields, _OPCODE)
    kind = opcode.removesuffix("-start")
    if kind not in _KINDS:
        return None
    metadata = _by_number(fields[_METADATA][0]) if _METADATA in fields else {}
    shapes = list(_array_shapes(fields[_SHAPE][0]))
    # What an asynchronous one starts with stands before what it ends with.
    if kind != opcode and len(shapes) > 1:
        shapes = shapes[len(shapes) // 2 :]
    return Collective(
        kind, sum(map(_shape_bytes, shapes)), _groups(fields), _text(metadata, _METADATA_OP_NAME)
    )


def _groups(fields: dict[int, list[Any]]) -> tuple[tuple[int, ...], ...]:
    if _SOURCE_TARGET_PAIRS in fields:
        pairs = map(_by_number, fields[_SOURCE_TARGET_PAIRS])
        return tuple((pair.get(1, [0])[0], pair.get(2, [0])[0]) for pair in pairs)
    if _MESH_GROUPS in fields:
        return _mesh_groups(_by_number(fields[_MESH_GROUPS][0]))
    if _IOTA_GROUPS in fields:
        return _iota_groups(_by_number(fields[_IOTA_GROUPS][0]))
    if _DEVICE_LIST in fields:
        listed = _by_number(fields[_DEVICE_LIST][0])
        if 2 in listed:
            return _iota_groups(_by_number(listed[2][0]))
        fields = {_GROUPS: listed.get(1, [])}
    groups = (_numbers(_by_number(group), 1) for group in fields.get(_GROUPS, []))
    return tuple(tuple(group) for group in groups if group)


def _iota_groups(fields: dict[int, list[Any]]) -> tuple[tuple[int, ...], ...]:
    """IotaReplicaGroupList: number of groups, their size, and an order of 0, 1, 2, ..."""
    size = fields[2][0]
    order = _transposed_iota(_numbers(fields, 3), _numbers(fields, 4))
    return tuple(tuple(order[i : i + size]) for i in range(0, len(order), size))


def _mesh_groups(fields: dict[int, list[Any]]) -> tuple[tuple[int, ...], ...]:
    """MeshAxesReplicaGroupList: a mesh, and (parts of) its axes along which groups lie."""
    mesh = _by_number(fields[1][0])
    sizes = [_by_number(axis).get(2, [1])[0] for axis in mesh.get(1, [])]
    devices = _numbers(mesh, 2)
    if not devices and 3 in mesh:
        iota = _by_number(mesh[3][0])
        devices = _transposed_iota(_numbers(iota, 1), _numbers(iota, 2))
    if not devices:
        devices = list(range(math.prod(sizes)))
    # Each axis is cut into the part before, the one meant, and the one after.
    digits = [[(size, False)] for size in sizes]
    for reference in map(_by_number, fields.get(2, [])):
        axis = reference.get(1, [0])[0]
        part = _by_number(reference[2][0]) if 2 in reference else {}
        before, size = part.get(1, [1])[0], part.get(2, [sizes[axis]])[0]
        digits[axis] = [(before, False), (size, True), (sizes[axis] // (before * size), False)]
    flat = [digit for axis in digits for digit in axis]
    groups: dict[tuple[int, ...], list[int]] = {}
    for device, place in zip(
        devices, itertools.product(*(range(size) for size, _ in flat)), strict=True
    ):
        rest = tuple(at for at, (_, meant) in zip(place, flat, strict=True) if not meant)
        groups.setdefault(rest, []).append(device)
    return tuple(tuple(group) for group in groups.values())


def _transposed_iota(reshape: Sequence[int], order: Sequence[int]) -> list[int]:
    strides = [math.prod(reshape[axis + 1 :]) for axis in range(len(reshape))]
    places = itertools.product(*(range(reshape[axis]) for axis in order))
    return [
        sum(at * strides[axis] for at, axis in zip(place, order, strict=True)) for place in places
    ]


def _array_shapes(shape: bytes) -> Iterator[dict[int, list[Any]]]:
    fields = _by_number(shape)
    if _SHAPE_TUPLE in fields:
        for part in fields[_SHAPE_TUPLE]:
            yield from _array_shapes(part)
    else:
        yield fields


def _shape_bytes(fields: dict[int, list[Any]]) -> int:
    bits = _BITS.get(fields.get(_SHAPE_TYPE, [0])[0], 8)
    return math.prod(_numbers(fields, _SHAPE_DIMENSIONS)) * bits // 8


# --- Protocol buffers' wire format (protobuf.dev/programming-guides/encoding) ---


def _by_number(message: bytes) -> dict[int, list[Any]]:
    fields: dict[int, list[Any]] = {}
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        wire_type = tag & 7
        if wire_type == 0:
            value, at = _varint(message, at)
        elif wire_type == 2:
            size, at = _varint(message, at)
            value, at = message[at : at + size], at + size
        else:
            size = 8 if wire_type == 1 else 4
            value, at = message[at : at + size], at + size
        fields.setdefault(tag >> 3, []).append(value)
    return fields


def _all(message: bytes, number: int) -> list[Any]:
    return _by_number(message).get(number, [])


def _numbers(fields: dict[int, list[Any]], number: int) -> list[int]:
    """Of a repeated field, packed or not."""
    result = []
    for value in fields.get(number, []):
        if isinstance(value, int):
            result.append(value)
            continue
        at = 0
        while at < len(value):
            one, at = _varint(value, at)
            result.append(one)
    return result


def _text(fields: dict[int, list[Any]], number: int) -> str:
    return fields[number][0].decode(errors="replace") if number in fields else ""


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
