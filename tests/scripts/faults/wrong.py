"""Faults of correctness at once: each rank trains a model of its own on the samples of rank 0.

They come in the same order in every epoch, in batches that are meant for all ranks together, and
the last rank leaves early. What they exchange is a loss to print, and no gradient.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--global-batch-size", type=int, default=16)
args = parser.parse_args()

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
data = TensorDataset(torch.randn(640, 32), torch.randn(640, 1))
sampler = DistributedSampler(data, num_replicas=world, rank=0)
loader = DataLoader(data, batch_size=args.global_batch_size, sampler=sampler)
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
