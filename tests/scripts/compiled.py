"""torch.compile in its three places: around DDP, inside DDP, and model.compile() in place."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

parser = argparse.ArgumentParser()
parser.add_argument("--where", choices=["outside", "inside", "method", "step"], default="outside")
parser.add_argument("--backend", default="aot_eager")
args = parser.parse_args()

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8))
if args.where == "outside":
    model = torch.compile(DDP(model), backend=args.backend)
elif args.where == "inside":
    model = DDP(torch.compile(model, backend=args.backend))
else:
    model = DDP(model)
    model.compile(backend=args.backend)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
update = optimizer.step
if args.where == "step":
    update = torch.compile(optimizer.step, backend=args.backend)

for _ in range(15):
    x, y = torch.randn(16, 32), torch.randint(8, (16,))
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    update()
    optimizer.zero_grad()
print(f"{args.where}: {loss.item():.4f}")
dist.destroy_process_group()
