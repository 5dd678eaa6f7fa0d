"""Processes that share one model and train it each alone, in the style of Hogwild."""

import argparse

import torch
import torch.multiprocessing as mp
from torch import nn


def train(rank, model):
    torch.manual_seed(rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(30):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).pow(2).mean().backward()
        optimizer.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, default=2)
    model = nn.Linear(4, 1)
    model.share_memory()
    context = mp.get_context("spawn")
    count = parser.parse_args().processes
    processes = [context.Process(target=train, args=(rank, model)) for rank in range(count)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
