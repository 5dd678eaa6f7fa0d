"""Keras's own fit in three ways on made-up images, the first on all devices that there are.

with_keras.py OUT.json [--cpus N] [--serial]: N logical devices; no strategy at all. With several
devices Keras 3.15 cannot execute several steps in one call.
"""

import argparse
import json

import numpy as np
import tensorflow as tf
from tensorflow import keras

from scalewise.frameworks.tensorflow import Watch

BATCH, TRAIN, CHECK = 16, 104, 40
KINDS = (tf.TensorSpec((None, 6, 6, 1)), tf.TensorSpec((None,), tf.int64))

chance = np.random.default_rng(0)
images = chance.random((TRAIN + CHECK, 6, 6, 1), dtype=np.float32)
labels = (images.mean((1, 2, 3)) * 30).astype(int) % 3
checks = {"validation_data": (images[TRAIN:], labels[TRAIN:])}


def batches():
    """Yield batches that nobody has counted before."""
    for first in range(0, TRAIN, BATCH):
        last = min(first + BATCH, TRAIN)
        yield images[first:last], labels[first:last]


def model_for(strategy, together):
    """Return a model of which Keras executes so many steps in one call."""
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((6, 6, 1)), keras.layers.Flatten(), keras.layers.Dense(3)]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.1), loss, steps_per_execution=together)
    return model


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--cpus", type=int, default=0)
    parser.add_argument("--serial", action="store_true")
    said = parser.parse_args()
    if said.cpus:
        (cpu,) = tf.config.list_physical_devices("CPU")
        each = tf.config.LogicalDeviceConfiguration()
        tf.config.set_logical_device_configuration(cpu, [each] * said.cpus)
    alone = tf.distribute.get_strategy()
    strategy = alone if said.serial else tf.distribute.MirroredStrategy()
    pairs = tf.data.Dataset.from_tensor_slices((images[:TRAIN], labels[:TRAIN]))
    uncounted = tf.data.Dataset.from_generator(batches, output_signature=KINDS)
    model = model_for(strategy, 1)
    keeps = keras.callbacks.ModelCheckpoint("best.keras")
    first = model.fit(images[:TRAIN], labels[:TRAIN], BATCH, 2, 2, [keeps], **checks)
    shuffled = pairs.shuffle(TRAIN, seed=0).batch(BATCH)
    second = model_for(alone, 3).fit(shuffled, epochs=2, verbose=2)
    model = model_for(alone, 2)
    third = model.fit(uncounted, epochs=2, verbose=2, callbacks=[Watch()])
    model.evaluate(*checks["validation_data"], verbose=0)
    with open(said.out, "w", encoding="utf-8") as file:
        losses = [each.history["loss"] for each in (first, second, third)]
        json.dump({"losses": losses, "replicas": strategy.num_replicas_in_sync}, file)
