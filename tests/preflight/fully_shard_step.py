"""A training script for preflights: blocks under torch's fully_shard, with bfloat16 weights."""

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import torch_xla
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(1024, 4096, bias=False)
        self.down = nn.Linear(4096, 1024, bias=False)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


xr.use_spmd()
mesh = init_device_mesh("xla", (8,), mesh_dim_names=("fsdp",))
policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
model = nn.Sequential(Block(), Block(), Block())
for block in model:
    fully_shard(block, mesh=mesh, mp_policy=policy)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters())
x = torch.randn(512, 1024).to("xla")
xs.mark_sharding(x, xs.convert_to_xla_mesh(mesh), ("fsdp", None))
model(x).float().pow(2).mean().backward()
optimizer.step()
torch_xla.sync()
