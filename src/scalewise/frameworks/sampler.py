"""Which samples a replica sees in each micro-step; the same order in all frameworks."""

from collections.abc import Iterator, Sequence
from itertools import accumulate, islice
from typing import Any

import numpy as np

from scalewise.frameworks import too_few_samples
from scalewise.spec import Remainder, RunSpec

Indices = np.ndarray[Any, np.dtype[np.int64]]
"""Indices of samples in a data set."""
NO_SAMPLE = -1
"""The index, and the label, of an unused position in a batch."""


class Shards:
    """The shares of one replica: its sample indices, micro-step by micro-step.

    An epoch is one permutation, equal on all replicas, cut into global batches. Each of n replicas
    takes every n-th sample, so a global batch has the same samples for any n.
    """

    def __init__(self, size: int, spec: RunSpec, replica: int) -> None:
        if size < spec.replicas:
            raise too_few_samples(size, spec.replicas)
        self._size, self._replica, self._replicas = size, replica, spec.replicas
        assert spec.batch is not None
        self._batch, self._accumulate = spec.batch, spec.accumulate
        self._global_batch = spec.global_batch
        self._seed = spec.seed + spec.repeat
        self._reverses = spec.certify_order == "reversed"
        """Whether the samples of each global batch are in reversed order."""
        self._epoch, self._start_step = 0, 0
        self._full_steps, remainder = divmod(size, self._global_batch)
        rule: Remainder = spec.remainder
        if rule == "drop" and not self._full_steps:
            rule = "short"  # There is only one global batch: use it although it is not full.
        if remainder and rule == "pad":
            self._full_steps += 1  # Repeated samples fill the last global batch.
        self._remainder = remainder if rule == "short" else 0
        """Samples of all replicas in the last step, if its global batch is not full; else 0."""

    def __len__(self) -> int:
        return (self.steps - self._start_step) * self._accumulate

    @property
    def steps(self) -> int:
        """Optimizer steps per epoch."""
        return self._full_steps + bool(self._remainder)

    @property
    def samples_per_epoch(self) -> int:
        """Samples this replica trains on per epoch."""
        full = self._full_steps * self._batch * self._accumulate
        return full + sum(self.counts(self._full_steps))  # Adds 0 if there is no short step.

    def set_epoch(self, epoch: int, start_step: int = 0) -> None:
        """Choose the permutation, and the first step to yield."""
        self._epoch, self._start_step = epoch, start_step

    def is_full(self, step: int) -> bool:
        """Return whether every replica has full batches in a step."""
        return step < self._full_steps

    def counts(self, step: int) -> list[int]:
        """Return this replica's samples in each micro-step of a step."""
        if self.is_full(step):
            return [self._batch] * self._accumulate
        samples = len(range(self._replica, self._remainder, self._replicas))
        return [
            min(self._batch, max(0, samples - n * self._batch)) for n in range(self._accumulate)
        ]

    def global_samples(self, step: int) -> int:
        """Return the samples of all replicas in a step."""
        return self._global_batch if self.is_full(step) else self._remainder

    def weights(self, step: int) -> list[float]:
        """Return the factor for the mean loss of each micro-step. The average of the weighted
        gradients over replicas is then the mean over a global batch, even one that is not full.
        """
        return [count * self._replicas / self.global_samples(step) for count in self.counts(step)]

    def __iter__(self) -> Iterator[Indices]:
        return islice(self._micro_steps(), self._start_step * self._accumulate, None)

    def _micro_steps(self) -> Iterator[Indices]:
        order = np.random.default_rng([self._seed, self._epoch]).permutation(self._size)
        full_samples = self._full_steps * self._global_batch
        if full_samples > self._size:  # remainder = "pad"
            order = np.concatenate([order, np.resize(order, full_samples - self._size)])
        if self._reverses:
            full_batches = order[:full_samples].reshape(-1, self._global_batch)
            order = np.concatenate([full_batches[:, ::-1].reshape(-1), order[full_samples:][::-1]])
        full = order[:full_samples].reshape(-1, self._replicas)[:, self._replica]
        yield from full.reshape(-1, self._batch)
        if self._remainder:
            own_indices = order[full_samples:][self._replica :: self._replicas]
            for n, count in enumerate(self.counts(self._full_steps)):
                # A replica without samples gets one with weight 0, to take part in the exchange.
                yield own_indices[n * self._batch :][:count] if count else order[:1]


def validation_batches(
    size: int, batch: int, replica: int, replicas: int
) -> tuple[list[int], list[Indices]]:
    """Return the number of valid samples in each validation batch, and each batch's indices.

    Batches are padded with index 0 after the valid samples. All replicas get equally many batches,
    so that their exchanges during validation match.
    """
    own_indices = np.arange(replica, size, replicas)
    starts = range(0, -(-size // replicas), batch)  # Up to the longest share, size / replicas.
    counts = [min(batch, max(0, len(own_indices) - start)) for start in starts]
    batches = [own_indices[start:][:count] for start, count in zip(starts, counts)]
    return counts, [np.pad(indices, (0, batch - len(indices))) for indices in batches]


def pad_indices(indices: Indices, count: int, batch: int) -> Indices:
    """Return the first ``count`` indices, padded to a batch with ``NO_SAMPLE``.

    >>> pad_indices(np.array([7, 3]), 2, 4).tolist()
    [7, 3, -1, -1]
    """
    return np.pad(indices[:count], (0, batch - count), constant_values=NO_SAMPLE)


def count_steps(spec: RunSpec, size: int) -> int:
    """Return the optimizer steps per epoch, or in total if the run has no number of epochs."""
    shard = Shards(size, spec, spec.replicas - 1)  # The last replica has the fewest samples.
    if spec.samples is None:
        return spec.steps or shard.steps
    epochs, remaining = divmod(spec.samples, shard.samples_per_epoch)
    totals = accumulate(samples_by_step([shard]))
    # In the last epoch: the steps that do not reach the remaining samples, and the one that does.
    return epochs * shard.steps + sum(total < remaining for total in totals) + bool(remaining)


def samples_by_step(shards: Sequence[Shards]) -> list[int]:
    """Return the samples of these replicas together in each step of an epoch."""
    return [sum(sum(shard.counts(n)) for shard in shards) for n in range(shards[0].steps)]


def samples_in_steps(steps: int, by_step: Sequence[int]) -> int:
    """Return the samples of ``steps`` steps; ``by_step`` has those of each step of an epoch.

    >>> samples_in_steps(5, [8, 8, 3])
    35
    """
    epochs, remainder = divmod(steps, len(by_step))
    return epochs * sum(by_step) + sum(by_step[:remainder])
