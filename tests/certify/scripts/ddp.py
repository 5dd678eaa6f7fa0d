"""Data-parallel training with DistributedDataParallel; ``--fault`` plants one fault."""

import contextlib

import torch
import torch.distributed as dist
from models import build, data, loss_of, optimizer_of
from options import RANK, WORLD, autocast, parse
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler

FAULTS = (
    "no_ddp", "layer_outside", "module_called", "ignored_layer", "no_sync_last",
    "loss_times_world", "loss_over_world", "grads_divided_again", "hook_sums", "hook_local_scale",
    "accumulate_undivided", "accumulate_off_by_one", "no_zero_grad",
    "no_sampler", "same_shard", "no_set_epoch", "drop_last", "uneven_last_batch",
    "mean_of_token_means", "local_batch_norm", "local_buffers",
    "lr_times_world", "optimizer_state_on_rank_0", "scheduler_on_rank_0",
    "unscaled_twice", "clip_before_unscale", "trains_on_ema", "late_gradients",
)  # fmt: skip


class Chunks(torch.utils.data.Sampler):
    """Each rank's part of every global batch in one piece: the last parts differ in size."""

    def __init__(self, samples, args):
        order = RandomSampler(range(samples))
        self.batches = BatchSampler(order, args.global_batch, drop_last=False)
        self.batch = args.batch

    def __iter__(self):
        return (batch[RANK * self.batch :][: self.batch] for batch in self.batches)

    def __len__(self):
        return len(self.batches)


def loader_of(args):
    """Return the loader of this rank; a single rank shuffles as one device does."""
    dataset = data(args)
    if WORLD == 1 or args.fault == "no_sampler":
        return DataLoader(dataset, args.batch, shuffle=True)
    if args.fault == "uneven_last_batch":
        torch.manual_seed(0)
        return DataLoader(dataset, batch_sampler=Chunks(len(dataset), args))
    drop = args.fault == "drop_last"
    rank = 0 if args.fault == "same_shard" else RANK
    sampler = DistributedSampler(dataset, WORLD, rank, drop_last=drop)
    return DataLoader(dataset, args.batch, sampler=sampler, drop_last=drop)


def wrapped(args, model):
    """Return the model in DDP, or as the fault has it."""
    if WORLD == 1 or args.fault == "no_ddp":
        return model
    if args.fault == "layer_outside":
        for name in ("fc1", "fc2", "fc3"):  # And fc4 was forgotten.
            setattr(model, name, DistributedDataParallel(getattr(model, name)))
        return model
    if args.fault == "ignored_layer":
        ignored = ["fc2.weight", "fc2.bias"]
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, ignored)
    buffers = args.fault != "local_buffers"
    ddp = DistributedDataParallel(model, broadcast_buffers=buffers)
    if args.fault == "hook_sums":
        ddp.register_comm_hook(None, lambda _, bucket: exchange(bucket, bucket.buffer()))
    elif args.fault == "hook_local_scale":
        ddp.register_comm_hook(None, scaled_exchange)
    return ddp


def exchange(bucket, sent, factor=1.0):
    """Return the sum over ranks of what they send, times a factor."""
    reduced = dist.all_reduce(sent, async_op=True).get_future()
    return reduced.then(lambda future: future.value()[0] * factor)


def scaled_exchange(_, bucket):
    """Send numbers between -1 and 1, and scale the sum as if all ranks had the same range."""
    largest = bucket.buffer().abs().max()
    return exchange(bucket, bucket.buffer() / largest, largest / WORLD)


def loss_for(args, output, target):
    """Return the loss whose mean over ranks is that of the global batch."""
    loss = loss_of(output, target)
    if args.padded and args.fault != "mean_of_token_means":
        tokens = (target > 0).sum().float()
        total = tokens.clone()
        if WORLD > 1:
            dist.all_reduce(total)
        loss = loss * tokens * WORLD / total
    if args.fault == "loss_times_world":
        loss = loss * WORLD
    if args.fault == "loss_over_world":
        loss = loss / WORLD
    return loss if args.fault == "accumulate_undivided" else loss / args.accumulate


class Averaged:
    """A moving average of the weights, which the fault puts back into the model."""

    def __init__(self, model):
        self.model, self.weights = model, [p.detach().clone() for p in model.parameters()]

    @torch.no_grad()
    def update(self):
        for average, weight in zip(self.weights, self.model.parameters()):
            weight.copy_(average.lerp_(weight, 0.3))


class Late:
    """Gives the optimizer the gradients of the step before, as an exchange that nobody awaits."""

    def __init__(self, model):
        self.parameters = [*model.parameters()]
        self.last = [torch.zeros_like(p) for p in self.parameters]

    def swap(self):
        for place, parameter in enumerate(self.parameters):
            self.last[place], parameter.grad = parameter.grad, self.last[place]


def update(args, model, optimizer, scaler, late):
    """Clip what is to be clipped, and step."""
    parameters = [*model.parameters()]
    if args.fault == "grads_divided_again":
        for parameter in parameters:
            parameter.grad /= WORLD
    if args.fault == "clip_before_unscale":
        nn.utils.clip_grad_norm_(parameters, args.clip)
    if args.fault == "unscaled_twice":
        for parameter in parameters:
            parameter.grad /= scaler.get_scale()
    scaler.unscale_(optimizer)
    if args.clip and args.fault != "clip_before_unscale":
        nn.utils.clip_grad_norm_(parameters, args.clip)
    if late:
        late.swap()
    scaler.step(optimizer)
    scaler.update()


def micro_step(args, model, batch, scaler, *, last):
    """Add the gradients of a micro-batch; exchange them in the last one of a step."""
    inputs, target = batch
    quiet = not last if args.fault != "no_sync_last" else last
    forward = model.module if args.fault == "module_called" else model
    hold = quiet and isinstance(model, DistributedDataParallel)
    with model.no_sync() if hold else contextlib.nullcontext():
        with autocast(args):
            output = forward(inputs)
        scaler.scale(loss_for(args, output, target)).backward()


def start(args, model, optimizer):
    """Begin as after a restart, where only rank 0 has read the state of its optimizer."""
    if args.fault == "optimizer_state_on_rank_0" and RANK == 0:
        for parameter in model.parameters():
            optimizer.state[parameter]["momentum_buffer"] = torch.full_like(parameter, 0.01)


def main():
    args = parse(*FAULTS)
    if WORLD > 1:
        dist.init_process_group("gloo")
    model = build(args)
    if args.precision == "bf16-weights":
        model.bfloat16()
    model = wrapped(args, model)
    optimizer = optimizer_of(
        args, model.parameters(), WORLD if args.fault == "lr_times_world" else 1.0
    )
    start(args, model, optimizer)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)
    scales = args.fault in ("unscaled_twice", "clip_before_unscale")
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=scales)
    average = Averaged(model) if args.fault == "trains_on_ema" else None
    late = Late(model) if args.fault == "late_gradients" else None
    loader = loader_of(args)
    due = 0 if args.fault == "accumulate_off_by_one" else args.accumulate - 1
    for epoch in range(args.epochs):
        if isinstance(loader.sampler, DistributedSampler) and args.fault != "no_set_epoch":
            loader.sampler.set_epoch(epoch)
        for count, batch in enumerate(loader):
            last = count % args.accumulate == due
            if args.precision == "bf16-weights" and batch[0].is_floating_point():
                batch[0] = batch[0].bfloat16()
            micro_step(args, model, batch, scaler, last=last)
            if not last:
                continue
            update(args, model, optimizer, scaler, late)
            if args.fault != "no_zero_grad":
                optimizer.zero_grad()
            if average:
                average.update()
            if args.fault != "scheduler_on_rank_0" or RANK == 0:
                scheduler.step()
    if WORLD > 1:
        dist.destroy_process_group()
    return model


if __name__ == "__main__":
    model = main()  # Kept until Python exits: PyTorch 2.13 may deadlock where DDP is freed before.
