"""DDP into which a known cause of lost time can be put: the truth for explaining.

A cause comes as an argument, or in the environment: there it is no other program.
"""

import argparse
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

began = time.perf_counter()
parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=80)
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--slow-rank", type=float, default=0.0, help="seconds per step, on rank 1")
parser.add_argument("--where", choices=["forward", "loop"], default="forward")
parser.add_argument("--slow-loader", type=float, default=0.0, help="seconds per batch, everywhere")
parser.add_argument("--uneven", type=int, default=0, help="samples that rank 1 takes from rank 0")
parser.add_argument("--per-sample", type=float, default=0.0, help="seconds of compute per sample")
parser.add_argument("--checkpoint", type=float, default=0.0, help="seconds")
parser.add_argument("--start", type=float, default=0.0, help="seconds before anything is built")
parser.add_argument("--width", type=int, default=64)
args = parser.parse_args([*sys.argv[1:], *os.environ.get("CAUSE", "").split()])

time.sleep(args.start)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)


class Batches(Dataset):
    """One item is one batch; rank 0 may give some of its samples to rank 1."""

    def __len__(self):
        return args.steps

    def __getitem__(self, index):
        time.sleep(args.slow_loader)
        moved = args.uneven * (2 * rank - 1) if world == 2 else 0
        return torch.randn(args.batch_size + moved, args.width)


class Net(nn.Sequential):
    def forward(self, x):
        time.sleep(args.per_sample * len(x))
        if rank == 1 and args.where == "forward":
            time.sleep(args.slow_rank)
        return super().forward(x)


class Slow:
    """Takes its time to be saved."""

    def __reduce__(self):
        time.sleep(args.checkpoint)
        return Slow, ()


model = DistributedDataParallel(Net(nn.Linear(args.width, args.width), nn.Linear(args.width, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
if rank == 0 and world == 2:
    with open("built.txt", "w") as file:
        print(time.perf_counter() - began, file=file)
for step, x in enumerate(DataLoader(Batches(), batch_size=None)):
    if rank == 1 and args.where == "loop":
        time.sleep(args.slow_rank)
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    if rank == 0 and args.checkpoint and step == args.steps // 2:
        torch.save({"model": model.module.state_dict(), "slow": Slow()}, "checkpoint.pt")
dist.destroy_process_group()
