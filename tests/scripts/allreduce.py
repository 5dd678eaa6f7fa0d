"""Gradients averaged by hand: an all_reduce for each parameter, no DDP."""

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


def average_gradients(model):
    size = float(dist.get_world_size())
    for param in model.parameters():
        dist.all_reduce(param.grad, op=dist.ReduceOp.SUM)
        param.grad /= size


class Partition(torch.utils.data.Dataset):
    def __init__(self, data, rank, world):
        self.data, self.index = data, list(range(rank, len(data), world))

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        return self.data[self.index[i]], self.index[i] % 5


def run():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1234)
    mine = Partition(torch.randn(512, 20), rank, world)
    train_set = torch.utils.data.DataLoader(mine, batch_size=64 // world, shuffle=True)
    model = nn.Sequential(nn.Linear(20, 40), nn.ReLU(), nn.Dropout(0.1), nn.Linear(40, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    for epoch in range(3):
        epoch_loss = 0.0
        for data, target in train_set:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(data), target)
            epoch_loss += loss.item()
            loss.backward()
            average_gradients(model)
            optimizer.step()
        print("Rank", rank, ", epoch", epoch, ":", epoch_loss / len(train_set))
    dist.destroy_process_group()


if __name__ == "__main__":
    run()
