"""The smallest training step there is: one linear layer, one SGD step on the xla device.

python -m examples.linear
"""

import torch

import torch_xla.core.xla_model as xm

device = xm.xla_device()
model = torch.nn.Linear(128, 64).to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(16, 128, device=device)

loss = model(x).sum()
loss.backward()
xm.optimizer_step(opt)
xm.mark_step()

print(f"loss before the step {loss.item():.3f}, after it {model(x).sum().item():.3f}")
