"""Tensor-parallel training: fc2 is split by columns, fc3 by rows; ``--fault`` plants one fault.

A GPT is split by PyTorch's own ``parallelize_module``.
"""

import torch
import torch.distributed as dist
from models import build, data, loss_of, optimizer_of
from options import WORLD, autocast, parse
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional
from torch.utils.data import DataLoader, RandomSampler

FAULTS = ("bias_on_every_rank", "no_reduce_in_backward", "no_reduce_in_forward", "mean_in_forward")


class CopyToRanks(torch.autograd.Function):
    """The same input on all ranks: their gradients add up."""

    @staticmethod
    def forward(ctx, x, reduces):
        ctx.reduces = reduces
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        if ctx.reduces:
            gradient = gradient.contiguous()
            dist.all_reduce(gradient)
        return gradient, None


class SumOverRanks(torch.autograd.Function):
    """The sum of the ranks' parts; each part has the gradient of the sum."""

    @staticmethod
    def forward(ctx, x):
        x = x.contiguous().clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Split(nn.Module):
    """A linear layer of which each rank has a part."""

    def __init__(self, linear, mesh, dimension, fault):
        super().__init__()
        self.dimension, self.fault = dimension, fault
        bias = Shard(0) if dimension == 0 else Replicate()
        for name, tensor, placement in (
            ("weight", linear.weight, Shard(dimension)),
            ("bias", linear.bias, bias),
        ):
            setattr(self, name, nn.Parameter(distribute_tensor(tensor.detach(), mesh, [placement])))

    def forward(self, x):
        weight, bias = self.weight.to_local(), self.bias.to_local()
        if self.dimension == 0:
            x = CopyToRanks.apply(x, self.fault != "no_reduce_in_backward")
            return functional.linear(x, weight, bias)
        if self.fault == "bias_on_every_rank":
            return SumOverRanks.apply(functional.linear(x, weight, bias))
        x = functional.linear(x, weight)
        if self.fault != "no_reduce_in_forward":
            x = SumOverRanks.apply(x)
        return (x / WORLD if self.fault == "mean_in_forward" else x) + bias


def split(args, model):
    """Give each rank its part of the layers."""
    mesh = init_device_mesh("cpu", (WORLD,))
    if args.model == "gpt":
        for block in model.h:
            parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    else:
        model.fc2 = Split(model.fc2, mesh, 0, args.fault)
        model.fc3 = Split(model.fc3, mesh, 1, args.fault)


def main():
    args = parse(*FAULTS)
    model = build(args)
    if WORLD > 1:
        dist.init_process_group("gloo")
        split(args, model)
    optimizer = optimizer_of(args, model.parameters())
    dataset = data(args)
    torch.manual_seed(0)  # All ranks read the same samples.
    loader = DataLoader(dataset, args.global_batch, sampler=RandomSampler(dataset))
    for _ in range(args.epochs):
        for inputs, target in loader:
            with autocast(args):
                output = model(inputs)
            loss_of(output, target).backward()
            optimizer.step()
            optimizer.zero_grad()
    if WORLD > 1:
        dist.destroy_process_group()
    return model


if __name__ == "__main__":
    model = main()  # Kept until Python exits: PyTorch 2.13 may deadlock where DDP is freed before.
