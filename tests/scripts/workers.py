"""Loaders with worker processes: an IterableDataset sharded by rank and by worker, persistent."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Stream(IterableDataset):
    def __init__(self, size, rank, world):
        self.size, self.rank, self.world = size, rank, world

    def __iter__(self):
        info = get_worker_info()
        start, stride = self.rank * info.num_workers + info.id, self.world * info.num_workers
        for i in range(start, self.size, stride):
            g = torch.Generator().manual_seed(i)
            yield {"image": torch.randn(64, generator=g), "label": i % 10}


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo")
    loader = DataLoader(
        Stream(480, rank, world),
        batch_size=12,
        num_workers=2,
        persistent_workers=True,
        prefetch_factor=4,
    )
    model = DDP(nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        for batch in loader:
            loss = nn.functional.cross_entropy(model(batch["image"]), batch["label"])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
