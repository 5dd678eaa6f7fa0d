"""Pipeline-parallel training on two or more stages; ``--fault`` plants one fault."""

from copy import deepcopy

import torch
import torch.distributed as dist
from models import data, loss_of, optimizer_of
from options import RANK, WORLD, autocast, parse
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.utils.data import DataLoader, RandomSampler

FAULTS = ("micro_batches_summed", "micro_batch_dropped", "optimizer_of_a_copy", "scaled_by_stages")
MICRO_BATCHES = 4


class Chain(nn.Module):
    """Linear layers in a row, of which a stage has some; the others are None."""

    def __init__(self, depth=8, width=24):
        super().__init__()
        for place in range(depth):
            setattr(self, f"fc{place}", nn.Linear(20 if place == 0 else width, width))
        self.depth = depth

    def forward(self, x):
        for place in range(self.depth):
            layer = getattr(self, f"fc{place}")
            if layer is not None:
                x = torch.tanh(layer(x))
        return x


def cut(model):
    """Keep the layers of this rank's stage."""
    for place in range(model.depth):
        if place * WORLD // model.depth != RANK:
            setattr(model, f"fc{place}", None)


def batches(args, loader):
    """Return the batches of all epochs."""
    return (batch for _ in range(args.epochs) for batch in loader)


def train_alone(args, model, loader):
    """Train on one device, with the micro-batches of a pipeline one after another."""
    optimizer = optimizer_of(args, model.parameters())
    for inputs, target in batches(args, loader):
        for x, y in zip(inputs.chunk(MICRO_BATCHES), target.chunk(MICRO_BATCHES)):
            with autocast(args):
                output = model(x)
            (loss_of(output, y) / MICRO_BATCHES).backward()
        optimizer.step()
        optimizer.zero_grad()


def train_stage(args, model, loader):
    """Train this rank's stage."""
    cut(model)
    copied = args.fault == "optimizer_of_a_copy" and RANK == 0
    optimizer = optimizer_of(args, (deepcopy(model) if copied else model).parameters())
    stage = PipelineStage(model, RANK, WORLD, torch.device("cpu"))
    kind = Schedule1F1B if args.seed % 2 else ScheduleGPipe
    divided = args.fault != "micro_batches_summed"
    micro_batches = max(MICRO_BATCHES, WORLD)  # A schedule needs one for each stage.
    schedule = kind(stage, micro_batches, loss_fn=loss_of, scale_grads=divided)
    for inputs, target in batches(args, loader):
        if args.fault == "micro_batch_dropped":
            kept = len(inputs) - len(inputs) // micro_batches
            inputs, target = inputs[:kept], target[:kept]
        with autocast(args):
            if RANK == 0:
                schedule.step(inputs)
            elif RANK == WORLD - 1:
                schedule.step(target=target)
            else:
                schedule.step()
        if args.fault == "scaled_by_stages":
            for parameter in model.parameters():
                parameter.grad /= RANK + 1
        optimizer.step()
        optimizer.zero_grad()


def main():
    args = parse(*FAULTS)
    torch.manual_seed(args.seed)
    model = Chain()
    dataset = data(args)
    torch.manual_seed(0)  # All stages read the same samples.
    loader = DataLoader(dataset, args.global_batch, sampler=RandomSampler(dataset))
    if WORLD == 1:
        train_alone(args, model, loader)
        return
    dist.init_process_group("gloo")
    train_stage(args, model, loader)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
