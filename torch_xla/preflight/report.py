"""What a preflight found."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch_xla._internal.chips import chip_of
from torch_xla.debug.collectives import Collective, table
from torch_xla.experimental.topology import Compiled, CompileError, Topology

_LISTED = 8


@dataclasses.dataclass(frozen=True)
class Step:
    """A traced step. Bytes are of each device, without gaps between rows.

    Attributes:
        name: of the program.
        overrides: XLA flags that the script set for it.
        axes, mesh_shape: names and sizes of the mesh that it is cut by; empty for one device.
        devices: of the topology, the one that each partition runs on.
        arguments, results: its arrays: "shape" (of the whole, in HLO's spelling),
            "bytes_on_device", "where" (the Python line that made it), "sharding", "donated".
        matmul_flops: operations of its matrix multiplications and convolutions, of all devices.
        note: why another program than the step was taken; empty if it is the step.
    """

    name: str
    overrides: Mapping[str, Any]
    axes: Sequence[str]
    mesh_shape: Sequence[int]
    devices: Sequence[int]
    arguments: Sequence[Mapping[str, Any]]
    results: Sequence[Mapping[str, Any]]
    matmul_flops: int
    note: str = ""

    @property
    def num_partitions(self) -> int:
        """Devices that it is cut over."""
        return len(self.devices)

    @property
    def argument_bytes(self) -> int:
        return sum(array["bytes_on_device"] for array in self.arguments)


@dataclasses.dataclass(frozen=True)
class Report:
    """Whether and how a step fits a topology. `str()` is the report to read.

    Attributes:
        topology: what it was compiled for.
        step: what was traced.
        compiled: what the compiler says; None if it refused.
        error: why it refused.
    """

    topology: Topology
    step: Step
    compiled: Compiled | None
    error: CompileError | None

    @property
    def fits(self) -> bool:
        """Whether the step compiles and its arrays fit a device's memory."""
        if self.compiled is None:
            return False
        needed, there = self.compiled.needed, self.topology.memory
        return needed is None or there is None or needed <= there

    @property
    def seconds(self) -> float | None:
        """XLA's estimate of a step's time, or a lower bound: by the chip's peak rates, as if
        nothing ever waited."""
        if self.compiled is None:
            return None
        return self.compiled.seconds or self._bound()

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        compiled = None
        if self.compiled:
            compiled = {
                field.name: getattr(self.compiled, field.name)
                for field in dataclasses.fields(Compiled)
                if field.name not in ("program", "collectives", "largest")
            }
            compiled["collectives"] = [dataclasses.asdict(one) for one in self.compiled.collectives]
            compiled["largest"] = [dataclasses.asdict(one) for one in self.compiled.largest]
        return {
            "topology": self.topology.name,
            "kind": self.topology.kind,
            "devices": self.topology.num_devices,
            "memory": self.topology.memory,
            "step": dataclasses.asdict(self.step),
            "compiled": compiled,
            "error": str(self.error) if self.error else None,
            "fits": self.fits,
            "seconds": self.seconds,
        }

    def __str__(self) -> str:
        parts = [self._headline(), f"note: {self.step.note}" if self.step.note else ""]
        if self.compiled is None:
            parts += [str(self.error), self._largest_arguments()]
        else:
            parts += [self._memory(), self._work()]
            if not self.fits:
                parts += [self._largest_arguments(), self._largest_temporaries()]
            found = map(self._named, self.compiled.collectives)
            parts.append(table(found, self.step.axes, self.step.mesh_shape).rstrip())
        return "\n".join(part for part in parts if part)

    def _headline(self) -> str:
        t = self.topology
        hosts = f", {t.num_processes} hosts" if t.num_processes > 1 else ""
        where = f"{t.name}: {t.num_devices} x {t.kind}{hosts}"
        if self.compiled is None:
            verdict = (
                "the step is too large for a chip"
                if self.error.out_of_memory
                else "the step does not compile"
            )
        elif not self.fits:
            verdict = "the step is too large for a chip"
        else:
            verdict = "the step fits"
        if self.step.num_partitions < t.num_devices:
            verdict += f" (it runs on {self.step.num_partitions} of the devices)"
        return f"{where}\n{verdict}"

    def _memory(self) -> str:
        c = self.compiled
        if c.needed is None:
            return "memory: the plugin does not say"
        lines = [
            ("arguments", c.arguments),
            ("results beside them", c.results - c.shared),
            ("temporaries", c.temporaries),
            ("together", c.needed),
        ]
        if self.topology.memory:
            lines.append(("there is", self.topology.memory))
        text = [f"  {name:<20} {_size(size):>12}" for name, size in lines]
        if c.argument_data is not None and c.argument_data < c.arguments:
            gaps = _size(c.arguments - c.argument_data)
            text[0] += f"  ({gaps} of it gaps in the chip's layouts)"
        if c.code:
            text.append(f"  {'code':<20} {_size(c.code):>12}")
        return "\n".join(["memory of each chip:", *text])

    def _work(self) -> str:
        c = self.compiled
        lines = []
        flops, by = self._flops()
        if flops:
            lines.append(f"  {'operations':<20} {flops:>12.3g} flops{by}")
        if c.bytes_accessed is not None and c.bytes_accessed > 0:
            lines.append(f"  {'memory traffic':<20} {_size(int(c.bytes_accessed)):>12}")
        if c.seconds is not None:
            lines.append(f"  {'time, by XLA':<20} {c.seconds * 1e3:>12.3g} ms")
        if (bound := self._bound()) is not None:
            lines.append(f"  {'time, at least':<20} {bound * 1e3:>12.3g} ms (at peak rates)")
        return "\n".join(["work of each chip, a step:", *lines]) if lines else ""

    def _bound(self) -> float | None:
        chip = chip_of(self.topology.name)
        if chip is None:
            return None
        flops, _ = self._flops()
        # Arguments are read, and results written, once at least.
        traffic = self.compiled.bytes_accessed or self.step.argument_bytes
        return max(flops / chip.flops, traffic / chip.bandwidth)

    def _flops(self) -> tuple[float, str]:
        """Of each chip, and what was counted where XLA's own estimate is not to be had."""
        if self.compiled.flops is not None and self.compiled.flops > 0:
            return self.compiled.flops, ""
        return self.step.matmul_flops / self.step.num_partitions, " (matmuls and convolutions)"

    def _named(self, found: Collective) -> Collective:
        """Where XLA names an argument only by its number, what that is."""
        match = re.match(r"Arg_(\d+)\.", found.operation)
        if not match or int(match[1]) >= len(self.step.arguments):
            return found
        array = self.step.arguments[int(match[1])]
        return dataclasses.replace(found, operation=f"{array['shape']} of {array['where']}")

    def _largest_arguments(self) -> str:
        arrays = sorted(self.step.arguments, key=lambda array: -array["bytes_on_device"])
        return _listing(
            "largest arguments, of each chip:",
            (
                (array["bytes_on_device"], array["shape"], array["sharding"], array["where"])
                for array in arrays[:_LISTED]
            ),
        )

    def _largest_temporaries(self) -> str:
        return _listing(
            "largest arrays made on the way, of each chip:",
            (
                (array.bytes, array.shape, array.instruction, array.operation)
                for array in self.compiled.largest[:_LISTED]
            ),
        )


def _listing(title: str, rows: Iterable[tuple[int, str, str, str]]) -> str:
    lines = [
        f"  {_size(size):>12}  {'  '.join(part for part in rest if part)}" for size, *rest in rows
    ]
    return "\n".join([title, *lines])


def _size(number: int) -> str:
    size, units = float(number), ["B", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return f"{size:.0f} {units[0]}" if units[0] == "B" else f"{size:.2f} {units[0]}"
