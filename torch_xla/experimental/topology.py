"""Compiles programs for devices that are not here.

A PJRT plugin's compiler needs no hardware: a topology says what there is to compile for. This
answers, on any machine, whether a program compiles for it, what it needs of each device's memory
and which collectives XLA puts in. `torch_xla.preflight` does so for the first step of a training
script.

    topology = describe("v5p:4x8x8")
    compiled = compile(stablehlo_text, topology)

Names of topologies:

- `v4:2x2x1`, `v5e:2x4`, `v5p:4x8x8`, `v6e:16x16`, `tpu7x:2x2x1`, ...: TPUs, by libtpu (extra
  `tpu`), whose names they are.
- `h100:8`, `a100:16`, `h100:2x8` (hosts x GPUs): NVIDIA GPUs, by the wheel jax-cuda12-pjrt or
  jax-cuda13-pjrt (extra `cuda`); `cuda:8` with `target_config` for any other GPU.
- `cpu:8`: devices of the host's processor, by its plugin.

Plugins may end the process that they do not like the request of, so each request is a process of
its own.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch_xla._internal import gpu_targets, plugins
from torch_xla.debug.collectives import Collective, collectives
from torch_xla.debug.program_arrays import Array, argument_bytes, largest_arrays


@dataclasses.dataclass(frozen=True)
class Topology:
    """Devices that need not be here.

    Attributes:
        name: as `describe` was given it.
        platform: "TPU", "CUDA" or "CPU": the `PJRT_DEVICE` of processes that have such devices.
        kind: of one device, as its plugin says: "TPU v5 lite".
        num_devices: how many; a TPU of up to v3 has two a chip.
        num_processes: hosts they belong to.
        memory: bytes of each device; None where nobody says.
    """

    name: str
    platform: str
    kind: str
    num_devices: int
    num_processes: int
    memory: int | None
    _request: Mapping[str, Any] = dataclasses.field(repr=False, compare=False)


@dataclasses.dataclass(frozen=True)
class Compiled:
    """What the compiler says of a program. Bytes are of each device.

    Attributes:
        arguments, results, temporaries, code: bytes by what they are for; None where the plugin
            does not say. A chip's layouts may leave gaps in an array, which count.
        argument_data: bytes of the arguments without such gaps; None where the plugin gives no
            program to read.
        shared: bytes of the results in memory that arguments had.
        flops, bytes_accessed, seconds: XLA's estimates for one run on each device; None where the
            plugin has none.
        collectives: what XLA put in for devices to exchange data.
        largest: the largest arrays made on the way.
        program: the optimized program, a serialized HloModuleProtoWithConfig.
    """

    arguments: int | None
    argument_data: int | None
    results: int | None
    shared: int | None
    temporaries: int | None
    code: int | None
    flops: float | None
    bytes_accessed: float | None
    seconds: float | None
    collectives: tuple[Collective, ...]
    largest: tuple[Array, ...]
    program: bytes = dataclasses.field(repr=False)

    @property
    def needed(self) -> int | None:
        """Bytes of each device's memory while it runs."""
        if self.arguments is None:
            return None
        return self.arguments + self.results - self.shared + self.temporaries


class CompileError(RuntimeError):
    """The compiler refused the program; the text is the compiler's."""

    @property
    def out_of_memory(self) -> bool:
        """Whether it refused because the program needs more memory than a device has."""
        text = str(self).lower()
        return "resource_exhausted" in text or "out of memory" in text


def describe(
    name: str, *, target_config: str | None = None, library: str | None = None
) -> Topology:
    """The topology of this name (see the module's text).

    Args:
        name: kind of device, a colon, and how many.
        target_config: for GPUs, a `stream_executor.GpuTargetConfigProto` in protobuf's text format
            instead of the built-in description.
        library: path of the plugin, instead of that of the installed wheel.

    Raises:
        ValueError: a name in another form, or one that the plugin does not know.
        RuntimeError: the plugin is not installed, or ended its process.
    """
    request = _request_of(name, target_config, library)
    try:
        answer = _ask({"do": "describe", **request})
    except CompileError as error:
        raise ValueError(f"no topology {name!r}: {error}") from None
    devices = answer["devices"]
    memory = devices[0]["attributes"].get("device_memory_bytes_limit")
    if memory is None and request["platform"] == "CUDA":
        memory = gpu_targets.memory_of(request["options"]["target_config"])
    return Topology(
        name=name,
        platform=request["platform"],
        kind=devices[0]["kind"],
        num_devices=len(devices),
        num_processes=1 + max(device["process_index"] for device in devices),
        memory=memory,
        _request=request,
    )


def compile(
    stablehlo: str,
    topology: Topology,
    *,
    num_partitions: int | None = None,
    devices: Sequence[int] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Compiled:
    """Compiles a program, with Shardy's annotations if it is for several devices.

    Args:
        stablehlo: text of the module.
        topology: for which devices.
        num_partitions: over how many of them the program is cut; by default over all.
        devices: in place of that, which of the topology's devices each partition runs on.
        overrides: XLA flags for this compilation.

    Raises:
        ValueError: more partitions than the topology has devices, or a device that it has not, or
            one twice.
        CompileError: the compiler refuses it.
        RuntimeError: the plugin ended its process.
    """
    if devices is None:
        partitions = topology.num_devices if num_partitions is None else num_partitions
        if not 1 <= partitions <= topology.num_devices:
            raise ValueError(
                f"compile: {partitions} partitions for {topology.name}, which has "
                f"{topology.num_devices} devices"
            )
        devices = range(partitions)
    elif not devices or len({*devices} & {*range(topology.num_devices)}) != len(devices):
        raise ValueError(
            f"compile: devices {list(devices)} for {topology.name}, which has 0 to "
            f"{topology.num_devices - 1}"
        )
    with tempfile.TemporaryDirectory() as folder:
        module = Path(folder, "module.mlir")
        module.write_text(stablehlo)
        program = Path(folder, "program")
        answer = _ask(
            {
                "do": "compile",
                **topology._request,
                "module": str(module),
                "program": str(program),
                "devices": list(devices),
                "overrides": dict(overrides or {}),
            }
        )
        optimized = program.read_bytes()
    memory = answer.get("memory", {})
    costs = answer.get("costs", {})
    readable = answer["format"] == "hlo_with_config"
    # Where calls or loops are of unknown cost, XLA's estimate may be below zero.
    seconds = costs.get("optimal_seconds", -1)
    return Compiled(
        **{key: memory.get(key) for key in ("arguments", "results", "shared", "temporaries")},
        argument_data=argument_bytes(optimized) if readable else None,
        code=memory.get("code"),
        flops=costs.get("flops"),
        bytes_accessed=costs.get("bytes accessed"),
        seconds=seconds if seconds > 0 else None,
        collectives=tuple(collectives(optimized)) if readable else (),
        largest=tuple(largest_arrays(optimized)) if readable else (),
        program=optimized,
    )


def _request_of(name: str, target_config: str | None, library: str | None) -> dict[str, Any]:
    match = re.fullmatch(r"([A-Za-z0-9]+):(\d+(?:x\d+)*)(?:_(?:un)?twisted)?", name)
    if not match or 0 in (sizes := [int(size) for size in match[2].split("x")]):
        raise ValueError(
            f"no topology {name!r}: a kind of device, a colon and how many, like v5p:4x8x8, "
            "h100:8 or cpu:8"
        )
    kind = match[1].lower()
    if kind == "cpu":
        platform, given, options = "CPU", "", {"cpu_device_count": math.prod(sizes)}
    elif kind == "cuda" or kind in gpu_targets.KINDS:
        platform, given = "CUDA", name
        options = {
            "topology": gpu_targets.slices(sizes),
            "target_config": target_config or gpu_targets.description(kind),
        }
    else:
        platform, given, options = "TPU", name, {}
    if target_config is not None and platform != "CUDA":
        raise ValueError(f"target_config describes GPUs, and {name!r} is none")
    library = library or plugins.get(platform).library_path()
    return {"platform": platform, "library": library, "topology": given, "options": options}


def _ask(request: dict[str, Any]) -> dict[str, Any]:
    """What a process of its own answers. Raises CompileError with the plugin's text."""
    done = subprocess.run(
        [sys.executable, "-m", "torch_xla._internal.topology_worker"],
        input=json.dumps(request),
        env=_environment(request["platform"]),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        status = done.returncode
        how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        raise RuntimeError(
            f"the plugin {request['library']} ended its process ({how}):\n"
            + "\n".join(done.stderr.splitlines()[-8:])
        )
    answer = json.loads(done.stdout.splitlines()[-1])
    if "error" in answer:
        raise CompileError(answer["error"])
    return answer


def _environment(platform: str) -> dict[str, str]:
    """For a plugin without hardware, that looks for none and keeps its log to itself."""
    environment = {
        **os.environ,
        "PJRT_DEVICE": "CPU",
        "TPU_SKIP_MDS_QUERY": "1",  # else it asks a cloud's server, again and again
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        "TPU_LOG_DIR": "disabled",
        "TPU_MIN_LOG_LEVEL": "3",
        "TPU_STDERR_LOG_LEVEL": "3",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    # Flags are for the user's own plugin; an unknown one would end the process.
    environment.pop("XLA_FLAGS", None)
    toolkit = _cuda_toolkit() if platform == "CUDA" else None
    if toolkit:
        environment["XLA_FLAGS"] = f"--xla_gpu_cuda_data_dir={toolkit}"
        environment["PATH"] = f"{toolkit}/bin{os.pathsep}{environment.get('PATH', '')}"
    return environment


def _cuda_toolkit() -> str | None:
    """Of the wheel nvidia-cuda-nvcc, which has the assembler and the library of device code."""
    package = importlib.util.find_spec("nvidia")
    for place in (package and package.submodule_search_locations) or ():
        for folder in ("cuda_nvcc", "cu13", "cu12"):
            if Path(place, folder, "bin", "ptxas").is_file():
                return str(Path(place, folder))
    return None
