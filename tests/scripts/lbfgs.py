"""LBFGS with a closure: several forward and backward passes inside one step, full batch."""

import torch
from torch import nn

torch.manual_seed(0)
x = torch.linspace(-3, 3, 100).unsqueeze(1)
y = torch.sin(x)
model = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
criterion = nn.MSELoss()
optimizer = torch.optim.LBFGS(
    model.parameters(), lr=0.1, max_iter=4, tolerance_grad=0, tolerance_change=0
)


def closure():
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    return loss


for step in range(15):
    loss = optimizer.step(closure)
    with torch.no_grad():
        print(f"step {step} loss {loss.item():.5f} test {criterion(model(x + 0.01), y):.5f}")
