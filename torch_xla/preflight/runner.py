"""The processes of a preflight: one traces the script, others compile what it traced."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from torch_xla.debug.flops import matmul_flops
from torch_xla.experimental import topology as topologies
from torch_xla.preflight.report import Report, Step


class PreflightError(RuntimeError):
    """The script ended before it had a step."""


def run(
    script: str | os.PathLike[str],
    arguments: Sequence[str] = (),
    *,
    topology: str | topologies.Topology,
    module: bool = False,
    target_config: str | None = None,
) -> Report:
    """Traces a script's first step and compiles it for a topology.

    Args:
        script: a Python file, or the name of a module.
        arguments: of the script.
        topology: its name, as `torch_xla.experimental.topology.describe` takes it.
        module: `script` is a module's name, as in `python -m`.
        target_config: for GPUs, their description.

    Raises:
        ValueError: there is no such topology.
        FileNotFoundError: there is no such script.
        PreflightError: the script failed, or ended, before it had computed anything.
        RuntimeError: the plugin is not installed, or ended its process.
    """
    if not module and not Path(script).is_file():
        raise FileNotFoundError(f"no script {os.fspath(script)!r}")
    if isinstance(topology, str):
        topology = topologies.describe(topology, target_config=target_config)
    step, stablehlo = _trace(os.fspath(script), list(arguments), topology, module)
    try:
        compiled = topologies.compile(
            stablehlo,
            topology,
            devices=step.devices,
            overrides=step.overrides,
        )
    except topologies.CompileError as error:
        return Report(topology, step, None, error)
    return Report(topology, step, compiled, None)


def _trace(
    script: str, arguments: list[str], topology: topologies.Topology, module: bool
) -> tuple[Step, str]:
    """The script's step and its StableHLO. What the script prints goes where ours does."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "step.json")
        request = {
            "script": script,
            "arguments": arguments,
            "module": module,
            "devices": topology.num_devices,
            "result": str(result),
        }
        done = subprocess.run(
            [sys.executable, "-m", "torch_xla.preflight.tracer", json.dumps(request)],
            env={**os.environ, "PJRT_DEVICE": topology.platform},
            check=False,
        )
        if not result.exists():
            raise PreflightError(
                f"{script} ended before it computed anything on an xla device"
                + (f" (exit status {done.returncode})" if done.returncode else "")
            )
        told = json.loads(result.read_text())
    stablehlo = told.pop("stablehlo")
    return Step(**told, matmul_flops=matmul_flops(stablehlo)), stablehlo
