"""Plays a TensorFlow run, then does the same by Keras's own fit; both print their lines.

python keras_fit.py SPEC.json
"""

import json
import sys
from pathlib import Path

import keras

from scalewise.frameworks.data_source import Source
from scalewise.frameworks.in_memory_data import read
from scalewise.frameworks.sampler import Shards
from scalewise.frameworks.tensorflow import load_part, loader
from scalewise.frameworks.tensorflow.session import (
    ProcessGroup,
    TensorFlowSession,
    build,
    make_optimizer,
)
from scalewise.probe import Unwatched
from scalewise.probe.tensorflow import devices
from scalewise.spec import RunSpec

if __name__ == "__main__":
    said = json.loads(Path(sys.argv[1]).read_text())
    spec, alone = (RunSpec.from_dict({**said, "topology": where}) for where in ("1x2", "1x1"))
    names = devices.bind(spec)
    data = read(Source.of_run(spec))
    parallel = load_part("strategies", spec.strategy)(spec, 0, names)
    session = TensorFlowSession(spec, data, parallel, ProcessGroup(parallel.strategy, 1), names)
    for epoch in range(spec.epochs):
        session.begin(epoch)
        for _ in range(session.outline.steps):
            session.step(Unwatched())
        session.losses()
        session.validate()
    print("-----", flush=True)

    shards = Shards(len(data.train), alone, 0)
    images, checks = (
        loader.transform_images(data.transform, each.images)
        for each in (data.train, data.validation)
    )

    def batches():
        """Yield the batches of one pass after the other."""
        for epoch in range(spec.epochs):
            shards.set_epoch(epoch)
            for row in shards:
                yield images.numpy()[row], data.train.labels[row]

    model = build(alone, data.shape, data.classes)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(make_optimizer(alone), loss, metrics=["accuracy"])
    model.fit(
        batches(),
        epochs=spec.epochs,
        steps_per_epoch=shards.steps,
        validation_data=(checks, data.validation.labels),
        verbose=2,
    )
