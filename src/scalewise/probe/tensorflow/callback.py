"""A Keras callback that records the training; an error ends the recording, not the training."""

import functools
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from keras.callbacks import Callback

from scalewise.probe.environment import major_minor, write_environment
from scalewise.probe.tensorflow import devices
from scalewise.probe.tensorflow.keras_steps import Execution, Steps
from scalewise.probe.watcher import Watcher, find_watcher

MIN_COUNTING_VERSION = (3, 2)
"""The first Keras version whose loss metric counts samples; earlier ones count batches."""


def if_watched(method: Callable[..., None]) -> Callable[..., None]:
    """Call a method with ``steps`` first, if the watcher is on. An error disables the watcher."""

    @functools.wraps(method)
    def safe(self: "Watch", *args: Any, **unused_logs: Any) -> None:
        steps = self.steps
        if steps is not None and steps.watcher.enabled:
            try:
                method(self, steps, *args)
            except Exception as problem:
                steps.watcher.disable(problem)

    return safe


class Watch(Callback):  # type: ignore[misc]  # Keras has no types.
    """Records steps, samples and validations if scalewise started the program; else does nothing.

    model.fit(x, y, callbacks=[Watch()])
    """

    async_safe = True
    """Lets Keras call ``on_train_batch_end`` in another thread, so that training does not wait."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = get_steps()

    @if_watched
    def on_epoch_begin(self, steps: Steps, epoch: int, logs: Any = None) -> None:
        model, watcher = self.model, steps.watcher
        replicas = model.distribute_strategy.num_replicas_in_sync
        watcher.devices = max(watcher.devices or 0, replicas)
        steps.count_samples = functools.partial(epoch_samples, model)
        # A custom train_step may count its metric once per replica: that is no number of samples.
        steps.implausible_samples = 0 if uses_keras_train_step(model) else replicas
        steps.count_updates = functools.partial(optimizer_updates, model)
        steps.begin_epoch()

    @if_watched
    def on_train_batch_begin(self, steps: Steps, batch: int, logs: Any = None) -> None:
        """Keras is about to call the training function, for one batch or for several."""
        optimizer = getattr(self.model, "optimizer", None)
        steps.begin_execution(
            Execution(
                first=batch,
                batches=self.model.steps_per_execution,
                epoch_batches=self.params.get("steps"),
                per_step=getattr(optimizer, "gradient_accumulation_steps", None) or 1,
            )
        )

    @if_watched
    def on_train_batch_end(self, steps: Steps, batch: int, logs: Any = None) -> None:
        steps.report_end(batch)

    @if_watched
    def on_epoch_end(self, steps: Steps, epoch: int, logs: Any = None) -> None:
        steps.end_execution()  # The last one; each other ended when the next began.

    @if_watched
    def on_test_begin(self, steps: Steps, logs: Any = None) -> None:
        steps.pause()

    @if_watched
    def on_test_end(self, steps: Steps, logs: Any = None) -> None:
        steps.resume("validate")  # The pause is recorded as validation.


def epoch_samples(model: Any) -> int | None:
    """Return the samples of this epoch so far, over all replicas; None if Keras does not count."""
    tracker = getattr(model, "_loss_tracker", None)
    if tracker is None or major_minor(keras.__version__) < MIN_COUNTING_VERSION:
        return None
    return int(keras.ops.convert_to_numpy(tracker.count))


def uses_keras_train_step(model: Any) -> bool:
    """Return whether a model uses Keras's own ``train_step``, whose loss metric counts samples."""
    step = getattr(model.train_step, "__func__", None)
    return step is not None and step.__module__.startswith("keras.")


def optimizer_updates(model: Any) -> int | None:
    """Return how many steps a model's optimizer has done; None without an optimizer."""
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        return None
    return int(keras.ops.convert_to_numpy(optimizer.iterations))


_steps: Steps | None = None


def get_steps() -> Steps | None:
    """Return the ``Steps`` of this process, always the same; None if scalewise did not start it."""
    global _steps
    if _steps is None and (watcher := find_watcher()) is not None:
        _steps = Steps(watcher)
        watcher.end_facts.append(functools.partial(facts, watcher, _steps))
        watcher.flush_events = _steps.finish
    return _steps


def facts(watcher: Watcher, steps: Steps) -> dict[str, Any]:
    """Record the remaining steps; return device, threads and peak memory for the record."""
    steps.finish()
    if not watcher.devices:
        return {}
    kind = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
    names = [f"{kind}:{n}" for n in range(watcher.devices)]
    values: dict[str, Any] = {
        "device": devices.name(names),
        "threads": tf.config.threading.get_intra_op_parallelism_threads() or None,
        "memory": devices.peak_memory(names),
    }
    if watcher.rank_and_world()[0] == 0:
        values["environment"] = write_environment(watcher.folder, devices.facts())
    return values
