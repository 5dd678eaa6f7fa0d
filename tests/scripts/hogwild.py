"""Processes that share one model and train it each alone, in the style of Hogwild."""

import argparse
import time

import torch
import torch.multiprocessing as mp
from torch import nn


def train(rank, model, all_started):
    torch.manual_seed(rank)
    all_started.wait()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(30):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).pow(2).mean().backward()
        optimizer.step()
        time.sleep(0.02)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, default=2)
    model = nn.Linear(4, 1)
    model.share_memory()
    context = mp.get_context("spawn")
    count = parser.parse_args().processes
    all_started = context.Barrier(count)
    processes = [
        context.Process(target=train, args=(rank, model, all_started)) for rank in range(count)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
