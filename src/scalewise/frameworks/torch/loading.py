"""Which batches a rank loads, how many, and by whom."""

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

from scalewise.frameworks.torch.data import Samples, Shards
from scalewise.spec import RunSpec


def checks(size: int, batch: int, replica: int, replicas: int) -> tuple[list[int], list[Tensor]]:
    """Return how many samples of each validation batch count, and the batches.

    All replicas have as many batches, and all batches are as long: those who
    exchange something while they look at them must do so together.
    """
    mine = torch.arange(replica, size, replicas)
    longest = -(-size // replicas)
    counts = [min(batch, max(0, len(mine) - start)) for start in range(0, longest, batch)]
    batches = [mine[n * batch :][:count] for n, count in enumerate(counts)]
    return counts, [torch.cat([each, each.new_zeros(batch - len(each))]) for each in batches]


def steps_of(spec: RunSpec, size: int) -> int:
    """Return the optimizer steps of an epoch, or in total; the same on every rank."""
    least = Shards(size, spec, spec.replicas - 1)  # Nobody has fewer samples in a ragged step.
    if spec.samples is None:
        return spec.steps or least.steps
    passes, left = divmod(spec.samples, least.seen)
    step = 0
    while left > 0:
        left -= sum(least.counts(step))
        step += 1
    return passes * least.steps + step


def loader(
    samples: Samples, sampler: Sampler[Tensor] | list[Tensor], spec: RunSpec, device: torch.device
) -> DataLoader[tuple[Tensor, Tensor]]:
    """Load whole batches: the sampler gives their indices."""
    return DataLoader(
        samples,
        batch_size=None,
        sampler=sampler,
        num_workers=spec.workers,
        persistent_workers=spec.workers > 0,
        pin_memory=device.type == "cuda",
    )
