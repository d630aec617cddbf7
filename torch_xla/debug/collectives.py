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
from torch_xla.debug import _hlo as hlo

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
            axis_names: of the mesh that the program is cut by; partition p is the device at place
                p of it.
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
    for module in hlo.every(program, hlo.WITH_CONFIG_MODULE):
        earlier: set[tuple[str, int]] = set()  # kinds and channels
        computations = list(map(hlo.by_number, hlo.every(module, hlo.MODULE_COMPUTATIONS)))
        callers = {
            called: hlo.operation(instruction)
            for computation in computations
            for instruction in _instructions(computation)
            for called in hlo.numbers(instruction, hlo.CALLED)
        }
        for computation in computations:
            caller = callers.get(computation[hlo.COMPUTATION_ID][0], "")
            found = list(_in_computation(computation, caller))
            result += [one for channel, one in found if (one.kind, channel) not in earlier]
            # One that overlaps with other work stands in the code of its beginning, of what goes on
            # meanwhile, and of its end.
            earlier.update((one.kind, channel) for channel, one in found if channel)
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


def _instructions(computation: dict[int, list[Any]]) -> list[dict[int, list[Any]]]:
    return list(map(hlo.by_number, computation.get(hlo.COMPUTATION_INSTRUCTIONS, [])))


def _in_computation(fields: dict[int, list[Any]], caller: str) -> Iterator[tuple[int, Collective]]:
    """The collectives of a computation with their channels, 0 where they have none.

    `caller`: what the computation is for.
    """
    instructions = _instructions(fields)
    scatters = hlo.text(fields, hlo.NAME).startswith("all-reduce-scatter")
    for instruction in instructions:
        found = _collective(instruction)
        if found is None:
            continue
        if scatters and found.kind == "all-reduce":
            # TPU: one operation that the code of a fusion describes as two.
            (root,) = (i for i in instructions if i[hlo.ID] == fields[hlo.COMPUTATION_ROOT])
            shapes = hlo.array_shapes(root[hlo.SHAPE][0])
            found = dataclasses.replace(
                found, kind="reduce-scatter", bytes=sum(map(hlo.shape_bytes, shapes))
            )
        if not found.operation:
            found = dataclasses.replace(found, operation=caller)
        yield instruction.get(hlo.CHANNEL, [0])[0], found


def _collective(fields: dict[int, list[Any]]) -> Collective | None:
    opcode = hlo.text(fields, hlo.OPCODE)
    kind = opcode.removesuffix("-start")
    if kind not in _KINDS:
        return None
    shapes = list(hlo.array_shapes(fields[hlo.SHAPE][0]))
    # What an asynchronous one starts with stands before what it ends with.
    if kind != opcode and len(shapes) > 1:
        shapes = shapes[len(shapes) // 2 :]
    return Collective(
        kind,
        sum(map(hlo.shape_bytes, shapes)),
        _groups(fields),
        hlo.operation(fields),
    )


def _groups(fields: dict[int, list[Any]]) -> tuple[tuple[int, ...], ...]:
    if hlo.SOURCE_TARGET_PAIRS in fields:
        pairs = map(hlo.by_number, fields[hlo.SOURCE_TARGET_PAIRS])
        return tuple((pair.get(1, [0])[0], pair.get(2, [0])[0]) for pair in pairs)
    if hlo.MESH_GROUPS in fields:
        return _mesh_groups(hlo.by_number(fields[hlo.MESH_GROUPS][0]))
    if hlo.IOTA_GROUPS in fields:
        return _iota_groups(hlo.by_number(fields[hlo.IOTA_GROUPS][0]))
    if hlo.DEVICE_LIST in fields:
        listed = hlo.by_number(fields[hlo.DEVICE_LIST][0])
        if 2 in listed:
            return _iota_groups(hlo.by_number(listed[2][0]))
        fields = {hlo.GROUPS: listed.get(1, [])}
    groups = (hlo.numbers(hlo.by_number(group), 1) for group in fields.get(hlo.GROUPS, []))
    return tuple(tuple(group) for group in groups if group)


def _iota_groups(fields: dict[int, list[Any]]) -> tuple[tuple[int, ...], ...]:
    """IotaReplicaGroupList: number of groups, their size, and an order of 0, 1, 2, ..."""
    size = fields[2][0]
    order = _transposed_iota(hlo.numbers(fields, 3), hlo.numbers(fields, 4))
    return tuple(tuple(order[i : i + size]) for i in range(0, len(order), size))


def _mesh_groups(fields: dict[int, list[Any]]) -> tuple[tuple[int, ...], ...]:
    """MeshAxesReplicaGroupList: a mesh, and (parts of) its axes along which groups lie."""
    mesh = hlo.by_number(fields[1][0])
    sizes = [hlo.by_number(axis).get(2, [1])[0] for axis in mesh.get(1, [])]
    devices = hlo.numbers(mesh, 2)
    if not devices and 3 in mesh:
        iota = hlo.by_number(mesh[3][0])
        devices = _transposed_iota(hlo.numbers(iota, 1), hlo.numbers(iota, 2))
    if not devices:
        devices = list(range(math.prod(sizes)))
    # Each axis is cut into the part before, the one meant, and the one after.
    digits = [[(size, False)] for size in sizes]
    for reference in map(hlo.by_number, fields.get(2, [])):
        axis = reference.get(1, [0])[0]
        part = hlo.by_number(reference[2][0]) if 2 in reference else {}
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
