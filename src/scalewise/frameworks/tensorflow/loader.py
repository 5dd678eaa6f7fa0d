"""Batches for the replicas of this process, by tf.data, in the order that every engine keeps.

Images travel as bytes; what a model sees of them is made on its device.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from scalewise.frameworks.in_memory_data import ImageTransform, Labelled
from scalewise.frameworks.sampler import Indices, Shards, checks
from scalewise.frameworks.tensorflow.strategies import Parallel
from scalewise.spec import RunSpec

Rows = tuple[Any, Any, Any]
"""Numbers of samples, a row per batch; how many of each row there are; a number that goes along."""


def training(held: Labelled, shards: Sequence[Shards], parallel: Parallel) -> Any:
    """Return an endless row of batches, pass after pass, each with the weight of its loss."""

    def passes() -> Iterator[Rows]:
        epoch = 0
        while True:
            yield _one_pass(shards, epoch)
            epoch += 1

    first = shards[0]
    ragged = not all(first.whole(step) for step in range(first.steps))
    return _distributed(held, passes, parallel, ragged=ragged)


def checking(held: Labelled, spec: RunSpec, parallel: Parallel) -> tuple[int, Any]:
    """Return how many batches a replica has to look at, and those in an endless row.

    With each goes how many of its samples count.
    """
    assert spec.batch is not None
    found = [checks(len(held), spec.batch, replica, spec.replicas) for replica in parallel.replicas]
    batches = np.stack([rows for _, rows in found], axis=1).reshape(-1, spec.batch)
    counts = np.stack([counts for counts, _ in found], axis=1).reshape(-1)
    rows = batches, np.full(len(batches), spec.batch), counts.astype(np.float32)

    def passes() -> Iterator[Rows]:
        while True:
            yield rows

    return len(found[0][0]), _distributed(held, passes, parallel, ragged=False)


def _one_pass(shards: Sequence[Shards], epoch: int) -> Rows:
    """Return the batches of a pass, of one replica after the other in each micro-step."""
    rows: list[Indices] = []
    weights: list[float] = []
    for shard in shards:
        shard.set_epoch(epoch)
    for micro in zip(*shards):
        rows += micro
    for step in range(shards[0].steps):
        weights += [
            each for micro in zip(*(shard.weights(step) for shard in shards)) for each in micro
        ]
    widest = max(map(len, rows))
    padded = np.stack([np.pad(row, (0, widest - len(row))) for row in rows])
    return padded, np.array([len(row) for row in rows]), np.array(weights, np.float32)


def _distributed(
    held: Labelled, passes: Callable[[], Iterator[Rows]], parallel: Parallel, *, ragged: bool
) -> Any:
    """Return an iterator whose items hold a batch for each replica of this process.

    It has no end: TensorFlow would ask all workers in each step whether they have reached it.
    """
    width = next(passes())[0].shape[1]
    images, labels = tf.constant(held.images), tf.constant(held.labels)

    def take(row: Any, count: Any, number: Any) -> Any:
        chosen = row[:count] if ragged else row
        return tf.gather(images, chosen), tf.gather(labels, chosen), number

    def made(_: Any) -> Any:
        kinds = (
            tf.TensorSpec((None, width), tf.int64),
            tf.TensorSpec((None,), tf.int64),
            tf.TensorSpec((None,), tf.float32),
        )
        batches = tf.data.Dataset.from_generator(passes, output_signature=kinds).unbatch()
        batches = batches.map(take).apply(
            tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
        )
        ahead = parallel.ahead.prefetch * len(parallel.replicas)
        return batches.prefetch(ahead) if ahead else batches

    to_device = tf.distribute.InputOptions(
        experimental_fetch_to_device=bool(parallel.ahead.prefetch)
    )
    return iter(parallel.strategy.distribute_datasets_from_function(made, to_device))


def finish(look: ImageTransform, images: Any) -> Any:
    """Return bytes as the numbers that a model sees."""
    seen = tf.cast(images, tf.float32)
    edges = images.shape[1:3]
    if look.edge and tuple(edges) != (look.edge, look.edge):
        shrinks = look.edge < max(edges)
        seen = tf.image.resize(seen, (look.edge, look.edge), "bilinear", antialias=shrinks)
    assert look.scale is not None
    seen = seen * look.scale
    if look.mean_std:
        mean, spread = look.mean_std
        seen = (seen - tf.constant(mean)) / tf.constant(spread)
    return seen
