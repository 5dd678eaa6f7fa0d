"""The host waits for the device every fiftieth step."""

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
losses = []
for step in range(150):
    x = torch.randn(32, 64, device=device)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), x)
    loss.backward()
    optimizer.step()
    if step % 50 == 49:
        losses.append(loss.item())
print(f"loss {losses[-1]:.4f}")
