"""A chain of small element-wise kernels is fused by torch.compile."""

import torch
from torch import nn


class Waves(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(256))

    def forward(self, x):
        for _ in range(12):
            x = torch.sin(x * self.scale) + torch.tanh(x) * 0.5
        return x


device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
model = torch.compile(Waves().to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(60):
    x = torch.randn(256, 256, device=device)
    optimizer.zero_grad()
    model(x).pow(2).mean().backward()
    optimizer.step()
