"""Which samples one replica sees, and when: in training and in validation; for every engine."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from scalewise.frameworks import too_few
from scalewise.spec import Remainder, RunSpec

Indices = np.ndarray[Any, np.dtype[np.int64]]
"""The numbers of some samples."""
NOBODY = -1
"""The number, and the label, of a place in a batch that no sample takes."""


class Shards:
    """Which samples one replica sees, micro-step by micro-step.

    An epoch is one permutation, the same on every replica, cut into global
    batches; each replica takes every n-th sample of a global batch. So the same
    global batch is the same set of samples on any number of replicas, and no
    sample comes twice. The order is another in every epoch (``set_epoch``).
    """

    def __init__(self, size: int, spec: RunSpec, replica: int) -> None:
        if size < spec.replicas:
            raise too_few(size, spec.replicas)
        self._size, self._replica, self._replicas = size, replica, spec.replicas
        assert spec.batch is not None
        self._batch, self._micro = spec.batch, spec.accumulate
        self._whole = spec.global_batch
        self._seed = spec.seed + spec.repeat
        self._epoch, self._place = 0, 0
        self._full, left = divmod(size, self._whole)
        rule: Remainder = spec.remainder
        if rule == "drop" and not self._full:
            rule = "short"  # The only global batch is kept, ragged as it is.
        self._full += 1 if left and rule == "pad" else 0
        self._left = left if rule == "short" else 0

    def __len__(self) -> int:
        return (self.steps - self._place) * self._micro

    @property
    def steps(self) -> int:
        """Optimizer steps per epoch."""
        return self._full + bool(self._left)

    @property
    def seen(self) -> int:
        """Samples this replica trains on per epoch."""
        return self._full * self._batch * self._micro + sum(self.counts(self._full))

    def set_epoch(self, epoch: int, place: int = 0) -> None:
        """Choose the order of this pass, and how many of its steps are done already."""
        self._epoch, self._place = epoch, place

    def whole(self, step: int) -> bool:
        """Say whether every replica has full batches in a step."""
        return step < self._full

    def counts(self, step: int) -> list[int]:
        """Return how many samples this replica has in each micro-step of a step."""
        if step < self._full:
            return [self._batch] * self._micro
        mine = len(range(self._replica, self._left, self._replicas))
        return [min(self._batch, max(0, mine - n * self._batch)) for n in range(self._micro)]

    def together(self, step: int) -> int:
        """Return how many samples all replicas have in a step."""
        return self._whole if step < self._full else self._left

    def weights(self, step: int) -> list[float]:
        """Return the factor of each micro-step's mean loss.

        With it the gradient, averaged over replicas, is the mean over the
        samples of the global batch, also when it is ragged.
        """
        return [count * self._replicas / self.together(step) for count in self.counts(step)]

    def __iter__(self) -> Iterator[Indices]:
        return islice(self._micro_steps(), self._place * self._micro, None)

    def _micro_steps(self) -> Iterator[Indices]:
        order = np.random.default_rng([self._seed, self._epoch]).permutation(self._size)
        missing = self._full * self._whole - self._size
        if missing > 0:  # remainder = "pad"
            order = np.concatenate([order, np.resize(order, missing)])
        full = order[: self._full * self._whole].reshape(-1, self._replicas)[:, self._replica]
        yield from full.reshape(-1, self._batch)
        if self._left:
            mine = order[self._full * self._whole :][self._replica :: self._replicas]
            for n, count in enumerate(self.counts(self._full)):
                # A replica without samples takes one along, with weight 0.
                yield mine[n * self._batch :][:count] if count else order[:1]


def checks(size: int, batch: int, replica: int, replicas: int) -> tuple[list[int], list[Indices]]:
    """Return how many samples of each validation batch count, and the batches.

    All replicas have as many batches, and all batches are as long: those who
    exchange something while they look at them must do so together.
    """
    mine = np.arange(replica, size, replicas)
    longest = -(-size // replicas)
    counts = [min(batch, max(0, len(mine) - start)) for start in range(0, longest, batch)]
    batches = [mine[n * batch :][:count] for n, count in enumerate(counts)]
    return counts, [np.pad(each, (0, batch - len(each))) for each in batches]


def filled(indices: Indices, count: int, batch: int) -> Indices:
    """Return as many numbers as a batch has places: ``NOBODY`` where no sample is left.

    >>> filled(np.array([7, 3]), 2, 4).tolist()
    [7, 3, -1, -1]
    """
    return np.pad(indices[:count], (0, batch - count), constant_values=NOBODY)


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


def in_steps(steps: int, samples: Sequence[int]) -> int:
    """Return the samples of so many steps: those of whole passes, and of the begin of one.

    >>> in_steps(5, [8, 8, 3])
    35
    """
    passes, rest = divmod(steps, len(samples))
    return passes * sum(samples) + sum(samples[:rest])
