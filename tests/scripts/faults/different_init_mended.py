"""The replicas begin equal: the weights of rank 0 are sent to all before the first step."""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = nn.Linear(32, 1)
for p in model.parameters():
    dist.broadcast(p.data, src=0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(40):
    x, y = torch.randn(16, 32), torch.randn(16, 1)
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()
    optimizer.step()
dist.destroy_process_group()
