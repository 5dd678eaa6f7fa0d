"""Unhappy endings: an exception on the last rank, an early exit, no step at all, stdin."""

import argparse
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class DataCorrupted(Exception):
    pass


parser = argparse.ArgumentParser()
parser.add_argument("--end", choices=["crash", "exit", "no-step", "stdin", "killed"])
parser.add_argument("--at", type=int, default=7)
args = parser.parse_args()

dist.init_process_group("gloo")
last = dist.get_rank() == dist.get_world_size() - 1
model = DDP(nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
if args.end == "stdin":
    print(f"stdin held {len(sys.stdin.read())} characters")
for step in range(0 if args.end == "no-step" else 20):
    if step == args.at and args.end == "crash" and last:
        raise DataCorrupted(f"shard 3 cannot be read at step {step}")
    if step == args.at and args.end == "exit":
        sys.exit(3)
    if step == args.at and args.end == "killed" and last:
        os.kill(os.getpid(), 9)
    optimizer.zero_grad()
    model(torch.randn(8, 16)).pow(2).mean().backward()
    optimizer.step()
dist.destroy_process_group()
