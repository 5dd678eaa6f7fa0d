"""The optimizer inside backward: one optimizer for each parameter, in post-accumulate hooks."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8))
optimizers = {p: torch.optim.Adam([p], foreach=False) for p in model.parameters()}


def optimizer_hook(parameter):
    optimizers[parameter].step()
    optimizers[parameter].zero_grad()


for p in model.parameters():
    p.register_post_accumulate_grad_hook(optimizer_hook)

for _ in range(20):
    x, y = torch.randn(16, 32), torch.randint(8, (16,))
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
print(f"loss {loss.item():.4f}")
