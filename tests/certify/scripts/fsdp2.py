"""Training with FSDP2 (``fully_shard``); ``--fault`` plants one fault."""

import torch
import torch.distributed as dist
from models import build, data, loss_of, optimizer_of
from options import RANK, WORLD, autocast, parse
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.data import DataLoader, DistributedSampler

FAULTS = ("sums", "unreduced_parameter", "same_shard", "no_sync_last", "lr_times_world")


def shard(args, model):
    """Shard every layer, then what is left."""
    mesh = init_device_mesh("cpu", (WORLD,))
    ignored = {model.fc3.weight} if args.fault == "unreduced_parameter" else None
    reduced = MixedPrecisionPolicy(reduce_dtype=torch.float32)
    parts = [*model.h] if args.model == "gpt" else []
    for part in parts:
        fully_shard(part, mesh=mesh, mp_policy=reduced)
    fully_shard(model, mesh=mesh, mp_policy=reduced, ignored_params=ignored)
    if args.fault == "sums":
        for part in (*parts, model):
            part.set_force_sum_reduction_for_comms(True)  # Gloo knows no other.
            part.set_gradient_divide_factor(1.0)


def main():
    args = parse(*FAULTS)
    model = build(args)
    if WORLD > 1:
        dist.init_process_group("gloo")
        shard(args, model)
    factor = WORLD if args.fault == "lr_times_world" else 1.0
    optimizer = optimizer_of(args, model.parameters(), factor)
    dataset = data(args)
    rank = 0 if args.fault == "same_shard" else RANK
    sampler = DistributedSampler(dataset, WORLD, rank)
    loader = DataLoader(dataset, args.batch, sampler=sampler)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for count, (inputs, target) in enumerate(loader, 1):
            last = count % args.accumulate == 0
            if WORLD > 1 and args.fault == "no_sync_last":
                model.set_requires_gradient_sync(not last)
            with autocast(args):
                output = model(inputs)
            (loss_of(output, target) / args.accumulate).backward()
            if last:
                if args.clip:
                    nn.utils.clip_grad_norm_(model.parameters(), args.clip)
                optimizer.step()
                optimizer.zero_grad()
    if WORLD > 1:
        dist.destroy_process_group()
    return model


if __name__ == "__main__":
    model = main()  # Kept until Python exits: PyTorch 2.13 may deadlock where DDP is freed before.
