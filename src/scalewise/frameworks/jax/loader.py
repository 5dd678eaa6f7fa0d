"""Batches for the devices of one process."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from scalewise.frameworks.in_memory_data import Labelled
from scalewise.frameworks.sampler import (
    NO_SAMPLE,
    Indices,
    Shards,
    pad_indices,
    validation_batches,
)
from scalewise.spec import RunSpec

Array = np.ndarray[Any, Any]


class Batch(NamedTuple):
    """Arrays of micro-steps × samples; the samples of one device follow those of the other."""

    images: Array
    labels: Array
    """``NO_SAMPLE`` where a batch is not full."""


class TrainLoader:
    """The training batches of this process's replicas, in the order that all frameworks share."""

    def __init__(self, data: Labelled, spec: RunSpec, replicas: Sequence[int]) -> None:
        assert spec.batch is not None
        self._data, self._batch, self._accumulate = data, spec.batch, spec.accumulate
        self._shards = [Shards(len(data), spec, replica) for replica in replicas]
        self._epoch, self._step = 0, 0
        self._indices: list[Iterator[Indices]] = []
        self.samples = [
            sum(sum(shard.counts(step)) for shard in self._shards) for step in range(self.steps)
        ]
        """Samples of this process in each step of an epoch."""

    @property
    def steps(self) -> int:
        """Optimizer steps per epoch."""
        return self._shards[0].steps

    def begin(self, epoch: int) -> None:
        """Start an epoch in a new order."""
        self._epoch, self._step = epoch, 0
        for shard in self._shards:
            shard.set_epoch(epoch)
        self._indices = [iter(shard) for shard in self._shards]

    def next_batch(self) -> tuple[Batch, int]:
        """Return the batch of the next step, and its number of samples."""
        if self._step == self.steps:
            self.begin(self._epoch + 1)
        counts = [shard.counts(self._step) for shard in self._shards]
        rows = [
            [
                pad_indices(next(indices), count[micro], self._batch)
                for indices, count in zip(self._indices, counts)
            ]
            for micro in range(self._accumulate)
        ]
        samples = self.samples[self._step]
        self._step += 1
        return _gather(self._data, np.array(rows).reshape(self._accumulate, -1)), samples


def validation_loader(data: Labelled, spec: RunSpec, replicas: Sequence[int]) -> Iterator[Batch]:
    """Yield the validation batches of this process's replicas, each sample once."""
    assert spec.batch is not None
    shares = [
        validation_batches(len(data), spec.batch, replica, spec.replicas) for replica in replicas
    ]
    for n in range(len(shares[0][0])):
        rows = [pad_indices(batches[n], counts[n], spec.batch) for counts, batches in shares]
        yield _gather(data, np.array(rows).reshape(1, -1))


def _gather(data: Labelled, indices: Indices) -> Batch:
    """Return the samples with these indices."""
    labels = np.where(indices == NO_SAMPLE, NO_SAMPLE, data.labels[indices])
    return Batch(data.images[indices], labels.astype(np.int32))
