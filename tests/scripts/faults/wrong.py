"""Faults of correctness at once: each rank trains a model of its own on the samples of rank 0.

They come in the same order in every epoch, and the last rank leaves early. What they exchange is a
loss to print, and no gradient.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
data = TensorDataset(torch.randn(640, 32), torch.randn(640, 1))
sampler = DistributedSampler(data, num_replicas=world, rank=0)
loader = DataLoader(data, batch_size=16, sampler=sampler)
torch.manual_seed(rank)
model = nn.Linear(32, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(3 - (rank == world - 1)):
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        if epoch == 0:
            dist.all_reduce(loss.detach())
        optimizer.step()
dist.barrier()
dist.destroy_process_group()
