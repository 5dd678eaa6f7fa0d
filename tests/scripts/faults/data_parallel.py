"""nn.DataParallel: one process for all devices, threads and copies in every step."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
data = TensorDataset(torch.randn(640, 32), torch.randn(640, 1))
loader = DataLoader(data, batch_size=32, shuffle=True)
model = nn.DataParallel(nn.Linear(32, 1).to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(2):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
