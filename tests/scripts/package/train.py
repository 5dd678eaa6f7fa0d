"""A package with relative imports, started by ``-m package.train``."""

import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from .data import build_loader
from .model import Classifier


def main(argv=None):
    parser = argparse.ArgumentParser(prog="package.train")
    parser.add_argument("--batch-size", type=int, default=16)
    args = parser.parse_args(argv)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(Classifier())
    optimizer = torch.optim.RMSprop(model.parameters())
    loader = build_loader(args.batch_size)
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
