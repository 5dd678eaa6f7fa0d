"""Fit a line; everything stands at the top level, and nothing speaks of a device."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(512, 8)
y = x @ torch.arange(8.0).unsqueeze(1) + 0.1 * torch.randn(512, 1)
dataset = TensorDataset(x, y)
loader = DataLoader(dataset, batch_size=32)

model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
criterion = nn.MSELoss()

for epoch in range(4):
    total = 0.0
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = criterion(model(inputs), targets)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(inputs)
    print(f"epoch {epoch}, mean {total / len(dataset):.6f}")

with torch.no_grad():
    print(f"final loss {criterion(model(x), y).item():.6f}")
torch.save(model.state_dict(), "flat.pt")
