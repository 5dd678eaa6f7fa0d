"""The cores are shared out among the processes of this machine."""

import os

import torch
from torch import nn

ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
torch.set_num_threads(max(1, os.cpu_count() // ranks))
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(60):
    x = torch.randn(128, 512)
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), x).backward()
    optimizer.step()
