"""Batches for the devices of one process."""

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import numpy as np

from scalewise.frameworks.data import Labelled
from scalewise.frameworks.sampler import NO_SAMPLE, Indices, Shards, pad_indices, validation_batches
from scalewise.spec import RunSpec

Batch = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]
"""Images and labels of micro-steps × samples; samples of padding have the label ``NO_SAMPLE``."""


def training_loader(
    data: Labelled, spec: RunSpec, shards: Sequence[Shards], epoch: int
) -> Iterator[Batch]:
    """Yield the batches of this process's replicas, one per step, endlessly from ``epoch`` on."""
    assert spec.batch is not None
    for current_epoch in count(epoch):
        for shard in shards:
            shard.set_epoch(current_epoch)
        micro_steps = zip(*shards)
        for step in range(shards[0].steps):
            counts = [shard.counts(step) for shard in shards]
            rows = [
                [
                    pad_indices(indices, shard_counts[micro], spec.batch)
                    for indices, shard_counts in zip(next(micro_steps), counts)
                ]
                for micro in range(spec.accumulate)
            ]
            yield _gather(data, np.array(rows).reshape(spec.accumulate, -1))


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
    # For NO_SAMPLE, which is -1, numpy returns the last sample: only its label is replaced.
    labels = np.where(indices == NO_SAMPLE, NO_SAMPLE, data.labels[indices])
    return data.images[indices], labels.astype(np.int32)
