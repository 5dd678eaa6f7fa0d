"""In the manner of WGAN: five critic updates, with clipped weights, for each of the generator."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

n_critic, latent, clip = 5, 8, 0.01

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
dataset = TensorDataset(torch.randn(800, 16))
sampler = DistributedSampler(dataset)
loader = DataLoader(dataset, batch_size=16, sampler=sampler)
generator = DDP(nn.Sequential(nn.Linear(latent, 32), nn.ReLU(), nn.Linear(32, 16)))
critic = DDP(nn.Sequential(nn.Linear(16, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1)))
optimizer_G = torch.optim.RMSprop(generator.parameters(), lr=5e-5)
optimizer_D = torch.optim.RMSprop(critic.parameters(), lr=5e-5)

for epoch in range(2):
    sampler.set_epoch(epoch)
    for i, (real,) in enumerate(loader):
        optimizer_D.zero_grad()
        with torch.no_grad():
            fake = generator(torch.randn(real.size(0), latent))
        loss_D = -critic(real).mean() + critic(fake).mean()
        loss_D.backward()
        optimizer_D.step()
        for p in critic.parameters():
            p.data.clamp_(-clip, clip)
        if i % n_critic == n_critic - 1:
            optimizer_G.zero_grad()
            loss_G = -critic(generator(torch.randn(real.size(0), latent))).mean()
            loss_G.backward()
            optimizer_G.step()
dist.destroy_process_group()
