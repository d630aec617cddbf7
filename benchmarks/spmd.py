"""What a step of a cut model costs the host, by the number of devices it runs on.

    CPU_NUM_DEVICES=8 python -m benchmarks.spmd --turns 6

Traces and syncs steps of a tiny GPT under FSDP, compiled before. One process drives all devices, so
that its work for a step is that of one device and must not grow with their number. CPU time is that
of the calling thread; see cached.py, also for turns.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch

from benchmarks import turns
from benchmarks.cached import Case
from benchmarks.measure import Device
from benchmarks.models import TRACING
from benchmarks.times import Run


def fsdp_step(device: Device) -> Callable[[], object]:
    """AdamW over parameters of which each device holds a part."""
    import torch_xla.distributed.spmd as xs
    import torch_xla.runtime as xr

    xr.use_spmd()
    mesh = xs.get_1d_mesh("fsdp")

    def optimizer(parameters: object) -> torch.optim.Optimizer:
        parameters = list(parameters)
        for parameter in parameters:
            spec = ["fsdp" if size >= mesh.size() else None for size in parameter.shape]
            spec = [axis if axis and axis not in spec[:d] else None for d, axis in enumerate(spec)]
            xs.mark_sharding(parameter, mesh, tuple(spec))
        return torch.optim.AdamW(parameters)

    return TRACING["GPT-12, AdamW"].training_step(device.torch, optimizer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    device = Device("xla")
    step = fsdp_step(device)

    def step_and_sync() -> None:
        step()
        device.sync()

    case = Case(device, Run(step_and_sync, after=device.finish))
    if arguments.turns is None:
        turns.serve(case)
    else:
        turns.run(case, arguments.turns)


if __name__ == "__main__":
    main()
