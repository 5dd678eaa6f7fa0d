"""Uneven ranks: last batches of differing size, or differing counts of batches under Join."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--join", action="store_true")
args = parser.parse_args()

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
data = TensorDataset(torch.randn(205, 16), torch.randn(205, 1))
mine = range(rank, 205, world)
if args.join:
    mine = range(rank * 45, 205 if rank == world - 1 else (rank + 1) * 45)
loader = DataLoader(Subset(data, mine), batch_size=10)
model = DDP(nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(2):
    with Join([model], enable=args.join):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
dist.destroy_process_group()
