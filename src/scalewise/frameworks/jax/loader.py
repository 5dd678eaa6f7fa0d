"""What the devices of one process see, step by step."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from scalewise.frameworks.in_memory_data import Labelled
from scalewise.frameworks.sampler import NOBODY, Indices, Shards, checks, filled
from scalewise.spec import RunSpec

Numbers = np.ndarray[Any, Any]


class Batch(NamedTuple):
    """Micro-steps × samples of this process's devices, one device after the other."""

    images: Numbers
    labels: Numbers
    """``NOBODY`` where a batch is not full."""


class Feed:
    """Makes the batches of this process's replicas, in the order that all engines keep."""

    def __init__(self, data: Labelled, spec: RunSpec, replicas: Sequence[int]) -> None:
        assert spec.batch is not None
        self._data, self._batch, self._micro = data, spec.batch, spec.accumulate
        self._shards = [Shards(len(data), spec, replica) for replica in replicas]
        self._epoch, self._place = 0, 0
        self._indices: list[Iterator[Indices]] = []
        self.samples = [
            sum(sum(each.counts(step)) for each in self._shards) for step in range(self.steps)
        ]
        """How many samples this process has in each step of a pass."""

    @property
    def steps(self) -> int:
        """Optimizer steps of a pass over the data."""
        return self._shards[0].steps

    def begin(self, epoch: int) -> None:
        """Start a pass in a new order."""
        self._epoch, self._place = epoch, 0
        for each in self._shards:
            each.set_epoch(epoch)
        self._indices = [iter(each) for each in self._shards]

    def take(self) -> tuple[Batch, int]:
        """Return the batch of the next step, and how many samples are in it."""
        if self._place == self.steps:
            self.begin(self._epoch + 1)
        counts = [each.counts(self._place) for each in self._shards]
        rows = [
            [
                filled(next(indices), count[micro], self._batch)
                for indices, count in zip(self._indices, counts)
            ]
            for micro in range(self._micro)
        ]
        samples = self.samples[self._place]
        self._place += 1
        return gathered(self._data, np.array(rows).reshape(self._micro, -1)), samples


def validation(data: Labelled, spec: RunSpec, replicas: Sequence[int]) -> Iterator[Batch]:
    """Return the batches of this process's replicas, each sample in one of them."""
    assert spec.batch is not None
    every = [checks(len(data), spec.batch, replica, spec.replicas) for replica in replicas]
    for number in range(len(every[0][0])):
        rows = [filled(batches[number], counts[number], spec.batch) for counts, batches in every]
        yield gathered(data, np.array(rows).reshape(1, -1))


def gathered(data: Labelled, indices: Indices) -> Batch:
    """Return the samples of these numbers."""
    labels = np.where(indices == NOBODY, NOBODY, data.labels[indices])
    return Batch(data.images[indices], labels.astype(np.int32))
