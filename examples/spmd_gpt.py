"""Trains the GPT of examples/gpt.py on many devices as one program, in one of four layouts.

python -m examples.spmd_gpt [--layout dp|fsdp|tp|fsdp_tp] [--devices 8] [--steps 50]

dp       each device has the whole model and a part of each batch;
fsdp     parameters and optimizer state are cut too, and gathered where they are used;
tp       layers are cut: each device computes some heads and some hidden units;
fsdp_tp  a grid of devices: fsdp along one axis, tp along the other.

Without accelerators the devices are made of the CPU. The losses are those of one device.
"""

from __future__ import annotations

import argparse
import os
import time

import numpy as np
import torch
from torch.nn import functional as F

from examples import common, gpt


def mesh_shape(layout: str, devices: int) -> tuple[int, int]:
    """Sizes of the axes "fsdp" (data and parameters) and "tp" (layers)."""
    if layout == "tp":
        return 1, devices
    if layout == "fsdp_tp":
        return devices // 2, 2
    return devices, 1


def cut_model(model: gpt.GPT, mesh, layout: str) -> None:
    """Says for each parameter which axes of the mesh cut it, and that activations lie by batch."""
    import torch_xla.distributed.spmd as xs

    if layout == "dp":
        return

    def by_batch(module: torch.nn.Module, args: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
        return (xs.mark_sharding_with_gradients(args[0], mesh, ("fsdp", None, None)),)

    for module in (*model.blocks, model.norm, model.head):
        module.register_forward_pre_hook(by_batch)
    rows = "fsdp"  # cut by fsdp along the dimension that tp leaves whole
    xs.mark_sharding(model.tokens.weight, mesh, ("tp", rows))
    for block in model.blocks:
        # Columns first, then rows: between the two no device needs another's part.
        xs.mark_sharding(block.qkv.weight, mesh, ("tp", rows))
        xs.mark_sharding(block.out.weight, mesh, (rows, "tp"))
        xs.mark_sharding(block.mlp[0].weight, mesh, ("tp", rows))
        xs.mark_sharding(block.mlp[0].bias, mesh, ("tp",))
        xs.mark_sharding(block.mlp[2].weight, mesh, (rows, "tp"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layout", choices=["dp", "fsdp", "tp", "fsdp_tp"], default="fsdp_tp")
    parser.add_argument("--devices", type=int, default=8, help="how many to make of a CPU")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--package", default="torch", help="whose documentation to learn")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    args = parser.parse_args()
    os.environ.setdefault("CPU_NUM_DEVICES", str(args.devices))

    import torch_xla
    import torch_xla.distributed.spmd as xs
    import torch_xla.runtime as xr
    from torch_xla.debug import collectives

    xr.use_spmd()
    devices = xr.global_runtime_device_count()
    shape = mesh_shape(args.layout, devices)
    mesh = xs.Mesh(np.arange(devices), shape, ("fsdp", "tp"))
    torch.manual_seed(args.seed)
    text = gpt.documentation(args.package)
    model = gpt.GPT(args.width, args.layers).to("xla")
    cut_model(model, mesh, args.layout)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def step() -> torch.Tensor:
        tokens, targets = (x.to("xla") for x in gpt.batch(text, args.batch))
        for x in (tokens, targets):
            xs.mark_sharding(x, mesh, ("fsdp", None))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        torch_xla.sync()
        return loss

    losses = [step().item()]
    print(f"mesh fsdp x tp = {shape[0]} x {shape[1]}; first loss {losses[0]:.4f}")
    print(collectives.report(("fsdp", "tp"), shape))
    start = time.perf_counter()
    losses += [step().item() for _ in range(args.steps - 1)]
    rate = (args.steps - 1) / (time.perf_counter() - start)
    print(f"last loss {losses[-1]:.4f}, {rate:.1f} steps/s")
    print(f"programs compiled: {common.compile_count(torch.device('xla'))}")


if __name__ == "__main__":
    main()
