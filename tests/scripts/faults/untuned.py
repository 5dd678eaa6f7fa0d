"""Faults of speed at once: unused parameters, no workers, an emptied cache, nothing compiled."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Slow(Dataset):
    def __len__(self):
        return 640

    def __getitem__(self, i):
        time.sleep(0.001)
        return torch.full((32,), float(i % 7)), torch.zeros(1)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = Slow()
    loader = DataLoader(data, batch_size=16, sampler=DistributedSampler(data), num_workers=0)
    model = DDP(nn.Linear(32, 1), find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        torch.cuda.empty_cache()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
