"""Data-parallel training whose gradients are averaged by hand; ``--fault`` plants one fault."""

import torch
import torch.distributed as dist
from models import build, data, loss_of, optimizer_of
from options import RANK, WORLD, autocast, parse
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

FAULTS = (
    "not_divided", "divided_twice", "weights_only", "one_layer_forgotten", "after_step",
    "clip_before_reduce", "no_broadcast", "decay_on_every_rank", "frozen_on_one_rank",
)  # fmt: skip
DECAY = 0.02
"""L2 penalty on fc1.weight."""


def broadcast(args, model):
    """Give all ranks the weights of rank 0."""
    if args.fault == "no_broadcast":
        for parameter in model.parameters():
            with torch.no_grad():
                parameter.add_(0.01 * RANK * torch.randn_like(parameter))
        return
    for tensor in (*model.parameters(), *model.buffers()):
        dist.broadcast(tensor.detach(), 0)


def average(args, model):
    """Replace the gradients by their mean over ranks."""
    for name, parameter in model.named_parameters():
        if args.fault == "weights_only" and parameter.ndim < 2:
            continue
        if args.fault == "one_layer_forgotten" and name.startswith("fc3"):
            continue
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        dist.all_reduce(parameter.grad)
        if args.fault != "not_divided":
            parameter.grad /= WORLD
        if args.fault == "divided_twice":
            parameter.grad /= WORLD


def loss_for(args, model, output, target):
    """Return the loss with its penalty."""
    if args.model != "mlp":
        return loss_of(output, target)
    penalty = DECAY * model.fc1.weight.square().sum()
    if args.fault == "decay_on_every_rank":
        penalty = penalty * WORLD
    return loss_of(output, target) + penalty


def step(args, model, optimizer):
    """Average the gradients, clip them, and update the weights."""
    parameters = [*model.parameters()]
    early = args.fault == "clip_before_reduce"
    if args.clip and early:
        nn.utils.clip_grad_norm_(parameters, args.clip)
    if WORLD > 1 and args.fault != "after_step":
        average(args, model)
    if args.clip and not early:
        nn.utils.clip_grad_norm_(parameters, args.clip)
    optimizer.step()
    if args.fault == "after_step":
        average(args, model)


def main():
    args = parse(*FAULTS)
    if WORLD > 1:
        dist.init_process_group("gloo")
    model = build(args)
    if WORLD > 1:
        broadcast(args, model)
    if args.fault == "frozen_on_one_rank" and RANK == 1:
        model.fc2.requires_grad_(requires_grad=False)
    optimizer = optimizer_of(args, model.parameters())
    dataset = data(args)
    sampler = DistributedSampler(dataset, WORLD, RANK)
    loader = DataLoader(dataset, args.batch, sampler=sampler)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for inputs, target in loader:
            optimizer.zero_grad()
            with autocast(args):
                output = model(inputs)
            loss_for(args, model, output, target).backward()
            step(args, model, optimizer)
    if WORLD > 1:
        dist.destroy_process_group()
    return model


if __name__ == "__main__":
    model = main()  # Kept until Python exits: PyTorch 2.13 may deadlock where DDP is freed before.
