"""A callback that tells of the training in which it is: of a program that scalewise has started.

In any other program it does nothing. Whatever fails here switches the watching off and lets the
training go on.
"""

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
from keras.callbacks import Callback

from scalewise.probe.environment import environment, release
from scalewise.probe.tensorflow import devices
from scalewise.record.write import write_json
from scalewise.watch.guest import Guest, place, the_guest
from scalewise.watch.keras.steps import Execution, Steps

COUNTS = (3, 2)
"""The first Keras whose metric of the loss counts samples, and not batches."""


def told(method: Callable[..., None]) -> Callable[..., None]:
    """Let a method of a callback be called only where somebody measures, and fail unnoticed."""

    @functools.wraps(method)
    def safe(self: "Watch", *words: Any, **named: Any) -> None:
        steps = self.steps
        if steps is not None and steps.guest.on:
            try:
                method(self, steps, *words)
            except Exception as problem:
                steps.guest.switch_off(problem)

    return safe


class Watch(Callback):  # type: ignore[misc]  # Keras has no types.
    """Tells scalewise of each step, its samples and the validations, if it started the program.

    model.fit(x, y, callbacks=[Watch()])
    """

    async_safe = True
    """Keras need not wait for the device to call ``on_train_batch_end``: any thread will do."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = the_steps()

    @told
    def on_epoch_begin(self, steps: Steps, epoch: int, logs: Any = None) -> None:
        """A pass over the data begins."""
        model, guest = self.model, steps.guest
        replicas = model.distribute_strategy.num_replicas_in_sync
        guest.devices = max(guest.devices or 0, replicas)
        steps.seen = functools.partial(samples_of, model)
        steps.doubted = 0 if steps_as_keras(model) else replicas
        steps.updates = functools.partial(updates_of, model)
        steps.begin()

    @told
    def on_train_batch_begin(self, steps: Steps, batch: int, logs: Any = None) -> None:
        """The training function is about to be called, for one batch or for several."""
        optimizer = getattr(self.model, "optimizer", None)
        steps.execute(
            Execution(
                first=batch,
                together=self.model.steps_per_execution,
                of=self.params.get("steps"),
                per_step=getattr(optimizer, "gradient_accumulation_steps", None) or 1,
            )
        )

    @told
    def on_train_batch_end(self, steps: Steps, batch: int, logs: Any = None) -> None:
        """The results of some batches are here."""
        steps.executed(batch)

    @told
    def on_epoch_end(self, steps: Steps, epoch: int, logs: Any = None) -> None:
        """All batches of a pass are done."""
        steps.end()

    @told
    def on_test_begin(self, steps: Steps, logs: Any = None) -> None:
        """A validation begins."""
        steps.pause()

    @told
    def on_test_end(self, steps: Steps, logs: Any = None) -> None:
        """A validation is over."""
        steps.resume("validate")


def samples_of(model: Any) -> int | None:
    """Return how many samples a pass has had so far, by all replicas; nothing if not counted."""
    tracker = getattr(model, "_loss_tracker", None)
    if tracker is None or release(keras.__version__) < COUNTS:
        return None
    return int(keras.ops.convert_to_numpy(tracker.count))


def steps_as_keras(model: Any) -> bool:
    """Say whether a model learns by Keras's own step, which tells its metric of each sample."""
    step = getattr(model.train_step, "__func__", None)
    return step is not None and step.__module__.startswith("keras.")


def updates_of(model: Any) -> int | None:
    """Return how many steps a model's optimizer has done; nothing if it has none."""
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        return None
    return int(keras.ops.convert_to_numpy(optimizer.iterations))


_only: Steps | None = None


def the_steps() -> Steps | None:
    """Return who is told of this program's steps, if anybody measures."""
    global _only
    folder = os.environ.get("SCALEWISE_RUN")
    if _only is None and folder:
        try:
            guest = the_guest(Path(folder))
        except (OSError, ValueError) as problem:
            print(f"scalewise: not watching: {problem!r}", file=sys.stderr)
            return None
        _only = Steps(guest)
        guest.at_end(functools.partial(facts, guest, _only))
        guest.catch_up = _only.finish
    return _only


def facts(guest: Guest, steps: Steps) -> dict[str, Any]:
    """Return what can be told at the end: the last steps, and what they were done with."""
    steps.finish()
    if not guest.devices:
        return {}
    kind = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
    names = [f"{kind}:{n}" for n in range(guest.devices)]
    found: dict[str, Any] = {
        "device": devices.name(names),
        "threads": tf.config.threading.get_intra_op_parallelism_threads() or None,
        "memory": devices.peak_memory(names),
    }
    if place()[0] == 0:
        found["environment"] = environment(devices.facts())
        write_json(guest.folder / "environment.json", found["environment"])
    return found
