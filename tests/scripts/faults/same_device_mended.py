"""Each rank takes the device of its local rank. Needs CUDA."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
torch.manual_seed(dist.get_rank())
model = DDP(nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256)).to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(60):
    x = torch.randn(64, 256, device=device)
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), x).backward()
    optimizer.step()
dist.destroy_process_group()
