"""Fit a curve with batches that are cut by hand, as many first scripts do."""

import numpy as np
import torch

torch.manual_seed(0)
x = torch.linspace(-2, 2, 256).unsqueeze(1)
y = torch.sin(2 * x)
model = torch.nn.Sequential(torch.nn.Linear(1, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
losses = []
for epoch in range(5):
    for i in range(0, len(x), 64):
        loss = ((model(x[i : i + 64]) - y[i : i + 64]) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
with torch.no_grad():
    print(f"final loss {((model(x) - y) ** 2).mean():.6f}")
np.save("losses.npy", losses)
