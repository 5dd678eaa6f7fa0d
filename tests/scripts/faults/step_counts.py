"""Ranks take different numbers of steps: a rank with more batches goes on, under Join."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)
size = 320 + 160 * dist.get_rank()
data = TensorDataset(torch.randn(size, 32), torch.randn(size, 1))
loader = DataLoader(data, batch_size=16, shuffle=True)
model = DDP(nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with Join([model]):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
dist.destroy_process_group()
