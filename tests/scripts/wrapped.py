"""A library's wrapper around DDP, as Fabric's is: the model that is called is not the replica."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Wrapper(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, *words):
        return self.inner(*words)


dist.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.randn(320, 64), torch.randint(0, 10, (320,)))
layers = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
model = Wrapper(DistributedDataParallel(layers))
learner = torch.optim.SGD(model.parameters(), lr=0.1)
sampler = DistributedSampler(data)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for images, labels in DataLoader(data, batch_size=16, sampler=sampler):
        learner.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        learner.step()
dist.destroy_process_group()
