"""In the manner of DCGAN: two models and two optimizers under DDP, three critic passes a step."""

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.optim as optim
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

nz, ngf, batch_size, num_epochs = 16, 8, 20, 2
real_label, fake_label = 1.0, 0.0

dist.init_process_group("gloo")
torch.manual_seed(999)
dataset = TensorDataset(torch.randn(400, 1, 8, 8))
sampler = DistributedSampler(dataset)
dataloader = DataLoader(dataset, batch_size=batch_size, sampler=sampler)

netG = nn.Sequential(
    nn.ConvTranspose2d(nz, ngf, 4),
    nn.BatchNorm2d(ngf),
    nn.ReLU(True),
    nn.ConvTranspose2d(ngf, 1, 4, 2, 1),
    nn.Tanh(),
)
netD = nn.Sequential(
    nn.Conv2d(1, ngf, 4, 2, 1), nn.LeakyReLU(0.2, inplace=True), nn.Conv2d(ngf, 1, 4), nn.Sigmoid()
)
netG, netD = DDP(netG), DDP(netD)
criterion = nn.BCELoss()
optimizerD = optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
optimizerG = optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999))

for epoch in range(num_epochs):
    sampler.set_epoch(epoch)
    for i, data in enumerate(dataloader, 0):
        netD.zero_grad()
        real = data[0]
        label = torch.full((real.size(0),), real_label)
        errD_real = criterion(netD(real).view(-1), label)
        errD_real.backward()
        fake = netG(torch.randn(real.size(0), nz, 1, 1))
        label.fill_(fake_label)
        errD_fake = criterion(netD(fake.detach()).view(-1), label)
        errD_fake.backward()
        optimizerD.step()

        netG.zero_grad()
        label.fill_(real_label)
        errG = criterion(netD(fake).view(-1), label)
        errG.backward()
        optimizerG.step()
        if i % 10 == 0:
            print(f"[{epoch}/{num_epochs}][{i}] D {errD_real + errD_fake:.3f} G {errG.item():.3f}")
dist.destroy_process_group()
