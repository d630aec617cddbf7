"""A training script for preflights: an MLP in one of the usual layouts.

python mlp_step.py LAYOUT
"""

import sys

import numpy as np
import torch

import torch_xla
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr

# For each layout the specs of the two weights, and of the batch and what the layers make of it.
LAYOUTS = {
    "data": ((None, None), (None, None), ("x", "y"), ("x", "y")),
    "fsdp": (("x", None), ("x", None), "x", "x"),
    "tensor": (("y", None), (None, "y"), None, None),
    "fsdp_tensor": (("y", "x"), ("x", "y"), "x", None),
}
first, second, batch, hidden = LAYOUTS[sys.argv[1]]

xr.use_spmd()
mesh = xs.Mesh(np.arange(8), (4, 2), ("x", "y"))
up = torch.nn.Linear(1024, 2048, bias=False).to("xla")
down = torch.nn.Linear(2048, 1024, bias=False).to("xla")
xs.mark_sharding(up.weight, mesh, first)
xs.mark_sharding(down.weight, mesh, second)
optimizer = torch.optim.SGD([*up.parameters(), *down.parameters()], lr=0.1)
inputs = torch.randn(512, 1024).to("xla")
xs.mark_sharding(inputs, mesh, (batch, None))
y = up(inputs)
if hidden is not None:
    y = xs.mark_sharding_with_gradients(y, mesh, (hidden, None))
y = xs.mark_sharding_with_gradients(down(y.relu()), mesh, (batch, None))
y.pow(2).mean().backward()
optimizer.step()
torch_xla.sync()
