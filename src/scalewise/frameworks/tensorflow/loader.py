"""Batches made by tf.data, in the same order as in all frameworks; the images are uint8."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count, repeat
from typing import Any

import numpy as np
import tensorflow as tf

from scalewise.frameworks.data import Labelled
from scalewise.frameworks.in_memory_data import ImageTransform
from scalewise.frameworks.sampler import Indices, Shards, validation_batches
from scalewise.frameworks.tensorflow.strategies import Parallel
from scalewise.spec import RunSpec

Rows = tuple[Any, Any, Any]
"""For each batch: padded sample indices, their number, and its loss weight or valid samples."""


def training_iterator(data: Labelled, shards: Sequence[Shards], parallel: Parallel) -> Any:
    """Return an endless iterator of training batches, each with the weight of its loss."""
    ragged = not shards[0].is_full(shards[0].steps - 1)  # Only the last step can be short.

    def epochs() -> Iterator[Rows]:
        return map(partial(_epoch_rows, shards), count())

    return _distribute(data, epochs, parallel, ragged=ragged)


def validation_iterator(data: Labelled, spec: RunSpec, parallel: Parallel) -> tuple[int, Any]:
    """Return the number of validation batches per replica, and an endless iterator of them."""
    assert spec.batch is not None
    shares = [
        validation_batches(len(data), spec.batch, replica, spec.replicas)
        for replica in parallel.replicas
    ]
    batches = np.stack([batches for _, batches in shares], axis=1).reshape(-1, spec.batch)
    counts = np.stack([counts for counts, _ in shares], axis=1).reshape(-1)
    rows = batches, np.full(len(batches), spec.batch), counts.astype(np.float32)
    return len(shares[0][0]), _distribute(data, lambda: repeat(rows), parallel, ragged=False)


def _epoch_rows(shards: Sequence[Shards], epoch: int) -> Rows:
    """Return the batches of an epoch: in each micro-step, one replica after the other."""
    for shard in shards:
        shard.set_epoch(epoch)
    rows: list[Indices] = [indices for micro_step in zip(*shards) for indices in micro_step]
    weights = [
        weight
        for step in range(shards[0].steps)
        for micro_step in zip(*(shard.weights(step) for shard in shards))
        for weight in micro_step
    ]
    widest = max(map(len, rows))
    padded = np.stack([np.pad(row, (0, widest - len(row))) for row in rows])
    return padded, np.array([len(row) for row in rows]), np.array(weights, np.float32)


def _distribute(
    data: Labelled, epochs: Callable[[], Iterator[Rows]], parallel: Parallel, *, ragged: bool
) -> Any:
    """Return an endless iterator; each item has a batch for each replica of this process.

    If it were finite, TensorFlow would ask all workers in each step whether it has ended.
    """
    width = next(epochs())[0].shape[1]
    images, labels = tf.constant(data.images), tf.constant(data.labels)

    def gather(row: Any, length: Any, weight_or_count: Any) -> Any:
        indices = row[:length] if ragged else row  # Rows of equal length have a static shape.
        return tf.gather(images, indices), tf.gather(labels, indices), weight_or_count

    def make_data_set(_: Any) -> Any:
        signature = (
            tf.TensorSpec((None, width), tf.int64),
            tf.TensorSpec((None,), tf.int64),
            tf.TensorSpec((None,), tf.float32),
        )
        batches = tf.data.Dataset.from_generator(epochs, output_signature=signature).unbatch()
        batches = batches.map(gather).apply(
            tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
        )
        prefetch = parallel.input_options.prefetch * len(parallel.replicas)
        return batches.prefetch(prefetch) if prefetch else batches

    to_device = bool(parallel.input_options.prefetch)
    options = tf.distribute.InputOptions(experimental_fetch_to_device=to_device)
    return iter(parallel.strategy.distribute_datasets_from_function(make_data_set, options))


def transform_images(transform: ImageTransform, images: Any) -> Any:
    """Return stored images as the model sees them: resized, scaled, normalized."""
    x = tf.cast(images, tf.float32)
    edges = images.shape[1:3]
    if transform.edge and tuple(edges) != (transform.edge, transform.edge):
        shrinks = transform.edge < max(edges)
        x = tf.image.resize(x, (transform.edge, transform.edge), "bilinear", antialias=shrinks)
    assert transform.scale is not None
    x = x * transform.scale
    if transform.mean_std:
        mean, std = transform.mean_std
        x = (x - tf.constant(mean)) / tf.constant(std)
    return x
