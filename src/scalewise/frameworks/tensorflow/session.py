"""Training by one process with TensorFlow: data, model, steps."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from scalewise.errors import SpecError
from scalewise.frameworks import Outline, Quality, Session
from scalewise.frameworks.data_source import in_memory_source
from scalewise.frameworks.in_memory_data import Arrays, read
from scalewise.frameworks.lr_schedule import Rates
from scalewise.frameworks.part_options import build_model, options_for
from scalewise.frameworks.sampler import Shards, count_steps, samples_by_step, samples_in_steps
from scalewise.frameworks.tensorflow import load_part, loader
from scalewise.frameworks.tensorflow.strategies import Parallel
from scalewise.probe import Laps, Probe
from scalewise.probe.tensorflow import devices
from scalewise.spec import RunSpec

POLICIES = {"bf16": "mixed_bfloat16", "fp16": "mixed_float16"}  # Keras's names of precisions.
MOMENTUM, EPSILON, WEIGHT_DECAY = 0.9, 1e-8, 0.01
"""Optimizer settings: PyTorch's defaults, and the momentum that all frameworks share."""


@contextmanager
def session(spec: RunSpec, rank: int, probe: Probe) -> Iterator["TensorFlowSession"]:
    """Set up the training, record its spans, and shut it down at the end."""
    device_names = devices.bind(spec)
    with probe.span("rendezvous"):
        strategy = load_part("strategies", spec.strategy)
        parallel: Parallel = strategy(spec, rank, device_names, **options_for(strategy, spec))
        processes = ProcessGroup(parallel.strategy, spec.ranks)
    probe.note(device=devices.name(device_names), threads=spec.threads)
    with probe.span("data"):
        data = read(in_memory_source(spec))
    with probe.span("build"):
        training = TensorFlowSession(spec, data, parallel, processes, device_names)
    with probe.span("compile"):
        training.trace()
    yield training
    with probe.span("shutdown"):
        processes.gather(np.zeros(1))  # Wait for all: the first to exit would end the others.
        gc.freeze()  # Otherwise the interpreter spends seconds freeing the graphs at exit.


class ProcessGroup:
    """All processes of a run, which may be this one only."""

    def __init__(self, strategy: Any, count: int) -> None:
        self._count = count

        def all_gather(row: Any) -> Any:
            on_device = tf.identity(row)  # Copied to this device: arguments may be elsewhere.
            return tf.distribute.get_replica_context().all_gather(on_device, axis=0)

        self._gather = tf.function(lambda row: strategy.run(all_gather, args=(row,)))

    def gather(self, numbers: Any) -> Any:
        """Return the numbers of all processes, a row per process."""
        row = np.asarray(numbers)[None]
        return row if self._count == 1 else self._gather(tf.constant(row)).numpy()


def make_optimizer(spec: RunSpec) -> Any:
    """Return the run's optimizer; with fp16 it scales the loss."""
    kinds: dict[str, Any] = {
        "sgd": partial(keras.optimizers.SGD, momentum=MOMENTUM),
        "adam": partial(keras.optimizers.Adam, epsilon=EPSILON),
        "adamw": partial(keras.optimizers.AdamW, weight_decay=WEIGHT_DECAY, epsilon=EPSILON),
    }
    optimizer = kinds[spec.optimizer](spec.lr * spec.lr_factor)
    return keras.optimizers.LossScaleOptimizer(optimizer) if spec.precision == "fp16" else optimizer


def build(spec: RunSpec, shape: tuple[int, int, int], classes: int) -> Any:
    """Return the run's model, its weights drawn from the run's seed."""
    keras.utils.set_random_seed(spec.seed + spec.repeat)
    keras.config.set_dtype_policy(POLICIES.get(spec.precision, "float32"))
    return build_model(load_part("workloads", str(spec.workload)), spec, shape, classes)


class TensorFlowSession(Session):
    """Steps on the replicas of one process."""

    def __init__(
        self,
        spec: RunSpec,
        data: Arrays,
        parallel: Parallel,
        processes: ProcessGroup,
        device_names: list[str],
    ) -> None:
        _set_tf32(spec, device_names)
        self._spec, self._parallel, self._processes = spec, parallel, processes
        self._device_names = device_names
        self._transform = data.transform
        shards = [Shards(len(data.train), spec, replica) for replica in parallel.replicas]
        steps = count_steps(spec, len(data.train))
        self._rates = Rates.of(spec, shards[0].steps, steps * (spec.epochs or 1))
        self._step_samples = samples_by_step(shards)
        """This process's samples in each step of an epoch."""
        self._train_batches = loader.training_iterator(data.train, shards, parallel)
        self._validate_steps, self._validate_batches = loader.validation_iterator(
            data.validation, spec, parallel
        )
        self._validation_samples = len(data.validation)
        with parallel.strategy.scope():
            self._model = build(spec, data.shape, data.classes)
            self._optimizer = make_optimizer(spec)
            self._optimizer.build(self._model.trainable_variables)
        _separate_dropout_seeds(self._model, parallel)
        self._train_step = self._on_replicas(self._train_replica)
        self._validate_step = self._on_replicas(self._validate_replica)
        self._forward_backward: Any = self._compute_gradients
        if spec.compile:
            self._forward_backward = tf.function(self._compute_gradients, jit_compile=True)
        self._step, self._steps_done, self._epoch = 0, 0, 0
        """Steps since ``begin``, steps in total, and the current epoch."""
        self._results: list[tuple[float, float, int]] = []
        """Loss, correct predictions and samples of this process in each step since ``begin``."""
        self._progress_bar: Any = None
        if 0 in parallel.replicas:  # The bar prints the same lines to a log as ``fit`` does.
            self._progress_bar = keras.callbacks.CallbackList(
                add_progbar=True, verbose=2, epochs=spec.epochs or 1, steps=steps
            )
        self._metrics: dict[str, float] = {}
        """What the progress bar shows at the end of the epoch."""
        self.outline = Outline(
            epochs=spec.epochs,
            steps=steps,
            samples=len(data.train),
            seen=samples_in_steps(steps, self._step_samples),
            parameters=sum(int(np.prod(w.shape)) for w in self._model.trainable_variables),
            uncounted="TensorFlow does not report operations",
            validation=len(data.validation),
            rates=str(self._rates),
        )

    def trace(self) -> None:
        """Trace the graphs of a training step and a validation step."""
        batch = self._train_batches.element_spec
        self._train_step.get_concrete_function(*(batch,) * self._spec.accumulate)
        self._validate_step.get_concrete_function(*self._validate_batches.element_spec)

    def _on_replicas(self, function: Any) -> Any:
        """Return a graph that sums a function's results over the replicas of this process."""
        strategy = self._parallel.strategy

        def run(*batch: Any) -> Any:
            return tf.add_n(strategy.experimental_local_results(strategy.run(function, args=batch)))

        return tf.function(run)

    def _train_replica(self, *batches: Any) -> Any:
        """Train on the micro-batches of one replica; ``apply`` sums gradients over all replicas."""
        sums, gradients = self._forward_backward(*batches[0])
        for batch in batches[1:]:
            batch_sums, batch_gradients = self._forward_backward(*batch)
            sums += batch_sums
            gradients = [total + addend for total, addend in zip(gradients, batch_gradients)]
        self._optimizer.apply(gradients, self._model.trainable_variables)
        return sums

    def _compute_gradients(self, images: Any, labels: Any, weight: Any) -> Any:
        """Return [this replica's part of the loss, its correct predictions] and the gradients."""
        with tf.GradientTape() as tape:
            output = self._model(loader.transform_images(self._transform, images), training=True)
            loss = tf.reduce_mean(_sample_losses(output, labels)) * weight / self._spec.replicas
            scaled = self._optimizer.scale_loss(loss) if self._spec.precision == "fp16" else loss
        sums = tf.stack([loss, tf.reduce_sum(_is_correct(output, labels))])
        return sums, tape.gradient(scaled, self._model.trainable_variables)

    def _validate_replica(self, images: Any, labels: Any, count: Any) -> Any:
        """Return the sums of correct predictions and losses of one replica."""
        output = self._model(loader.transform_images(self._transform, images), training=False)
        # The batch is padded: only its first ``count`` samples count.
        mask = tf.cast(tf.range(tf.shape(labels)[0]) < tf.cast(count, tf.int32), tf.float32)
        correct, losses = _is_correct(output, labels), _sample_losses(output, labels)
        return tf.stack([tf.reduce_sum(correct * mask), tf.reduce_sum(losses * mask)])

    def begin(self, epoch: int) -> None:
        """Start an epoch; the iterator continues with its batches after the previous epoch."""
        self._results, self._step, self._epoch = [], 0, epoch
        if self._progress_bar:
            self._progress_bar.on_epoch_begin(epoch)

    def step(self, probe: Laps) -> int:
        """Do one optimizer step; return its samples. Lap ``step`` is one undivided graph."""
        if not self._rates.constant:
            self._optimizer.learning_rate = self._rates.at(self._steps_done)
        batches = [next(self._train_batches) for _ in range(self._spec.accumulate)]
        probe.lap("input")
        loss, correct = self._train_step(*batches).numpy()
        probe.lap("step")
        samples = self._step_samples[self._step % len(self._step_samples)]
        self._results.append((loss, correct, samples))
        self._step += 1
        self._steps_done += 1
        return samples

    def settle(self) -> None:
        """Do nothing: a step ends when its loss is on the host."""

    def losses(self) -> list[float]:
        """Return the losses as any session does; also set the epoch's metrics for Keras."""
        if not self._results:
            return []
        losses, correct, samples = self._processes.gather(self._results).sum(axis=0).T
        self._metrics = {
            "loss": float(np.average(losses, weights=samples)),
            "accuracy": float(correct.sum() / samples.sum()),
        }
        if not self._spec.validates(self._epoch):
            self._print_metrics()
        return [round(float(loss), 9) for loss in losses]

    def validate(self) -> Quality:
        sums = np.zeros(2)
        for _ in range(self._validate_steps):
            sums += self._validate_step(*next(self._validate_batches)).numpy()
        samples = self._validation_samples
        accuracy, loss = map(float, self._processes.gather(sums).sum(axis=0) / samples)
        self._metrics |= {"val_loss": loss, "val_accuracy": accuracy}
        self._print_metrics()
        return Quality(accuracy=accuracy, loss=loss, samples=samples)

    def _print_metrics(self) -> None:
        """Make Keras print the epoch's line."""
        if self._progress_bar:
            self._progress_bar.on_epoch_end(self._epoch, self._metrics)

    def memory(self) -> int | None:
        """Return the peak bytes of this process, over all its devices."""
        return devices.peak_memory(self._device_names)

    def save(self, path: Path) -> None:
        """Write the weights in Keras's format, by the process with replica 0 only."""
        if 0 in self._parallel.replicas:
            self._model.save_weights(path.with_name("model.weights.h5"))


def _separate_dropout_seeds(model: Any, parallel: Parallel) -> None:
    """Give each replica its own dropout seed: Keras starts all with the same."""
    for layer in model.layers:
        if hasattr(layer, "seed_generator"):
            states = parallel.strategy.experimental_local_results(layer.seed_generator.state.value)
            for replica, state in zip(parallel.replicas, states):
                state.assign_add(tf.constant([replica, 0], state.dtype))


def _is_correct(output: Any, labels: Any) -> Any:
    return tf.cast(tf.argmax(output, -1) == labels, tf.float32)


def _sample_losses(output: Any, labels: Any) -> Any:
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, tf.cast(output, tf.float32))


def _set_tf32(spec: RunSpec, device_names: list[str]) -> None:
    """Switch tf32 on or off, as the run's precision says; refuse it on CPUs."""
    if spec.precision == "tf32" and device_names[0].startswith("CPU"):
        raise SpecError(
            "tf32 is a mode of CUDA devices, and this process has CPUs",
            hint='write precision = "fp32"',
        )
    tf.config.experimental.enable_tensor_float_32_execution(spec.precision == "tf32")
