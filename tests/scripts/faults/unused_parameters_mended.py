"""DDP is told nothing about unused parameters, for there are none."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
layers = [layer for _ in range(20) for layer in (nn.Linear(64, 64), nn.ReLU())]
model = DDP(nn.Sequential(*layers))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(60):
    x = torch.randn(16, 64)
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), x).backward()
    optimizer.step()
dist.destroy_process_group()
