"""A training script for preflights: a GPT of examples/, cut over all devices or on one.

python gpt_step.py [--layers N] [--width N] [--one] [--no-optimizer] [--read-early] ...
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch_xla
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from examples import gpt, spmd_gpt

parser = argparse.ArgumentParser()
parser.add_argument("--layers", type=int, default=1)
parser.add_argument("--width", type=int, default=64)
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--one", action="store_true", help="on one device")
parser.add_argument("--no-optimizer", action="store_true")
parser.add_argument("--read-early", action="store_true")
args = parser.parse_args()

print("devices", xr.global_runtime_device_count(), xr.device_type())
if not args.one:
    xr.use_spmd()
model = gpt.GPT(args.width, args.layers).to("xla")
assert all(p.is_leaf and p.device.type == "xla" for p in model.parameters())
if not args.one:
    devices = xr.global_runtime_device_count()
    mesh = xs.Mesh(np.arange(devices), spmd_gpt.mesh_shape("fsdp_tp", devices), ("fsdp", "tp"))
    spmd_gpt.cut_model(model, mesh, "fsdp_tp")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
while True:  # a preflight ends with the first step
    tokens = torch.randint(128, (args.batch, gpt.CONTEXT)).to("xla")
    targets = torch.randint(128, (args.batch, gpt.CONTEXT)).to("xla")
    if not args.one:
        for x in (tokens, targets):
            xs.mark_sharding(x, mesh, ("fsdp", None))
    loss = F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
    loss.backward()
    if args.read_early:
        print(loss.item())
    if args.no_optimizer:
        torch_xla.sync()
        break
    optimizer.step()
    optimizer.zero_grad()
    torch_xla.sync()
