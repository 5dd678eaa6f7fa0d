"""A training with TensorFlow, seen from one process: data, model, steps."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from scalewise.errors import SpecError
from scalewise.frameworks import Outline, Quality, Session
from scalewise.frameworks.data_source import Source
from scalewise.frameworks.in_memory_data import Arrays, read
from scalewise.frameworks.lr_schedule import Rates
from scalewise.frameworks.part_options import options_for
from scalewise.frameworks.sampler import Shards, in_steps, steps_of
from scalewise.frameworks.tensorflow import loader, part
from scalewise.frameworks.tensorflow.strategies import Parallel
from scalewise.probe import Laps, Probe
from scalewise.probe.tensorflow import devices
from scalewise.spec import RunSpec

POLICIES = {"bf16": "mixed_bfloat16", "fp16": "mixed_float16"}
MOMENTUM, EPSILON, DECAY = 0.9, 1e-8, 0.01
"""Of the optimizers, as PyTorch has them."""


@contextmanager
def session(spec: RunSpec, rank: int, probe: Probe) -> Iterator["TensorFlowSession"]:
    """Set up a training, its spans told to the probe, and take it down again."""
    names = devices.bind(spec)
    with probe.span("rendezvous"):
        strategy = part("strategies", spec.strategy)
        parallel: Parallel = strategy(spec, rank, names, **options_for(strategy, spec))
        everyone = Everyone(parallel.strategy, spec.ranks)
    probe.note(device=devices.name(names), threads=spec.threads)
    with probe.span("data"):
        data = read(Source.of_run(spec))
    with probe.span("build"):
        training = TensorFlowSession(spec, data, parallel, everyone, names)
    with probe.span("compile"):
        training.trace()
    yield training
    with probe.span("shutdown"):
        everyone.gather(np.zeros(1))  # Who leaves early ends the others.
        gc.freeze()  # To take the graphs apart at the end would take seconds, for nothing.


class Everyone:
    """All processes of a run; the only one is alone with itself."""

    def __init__(self, strategy: Any, count: int) -> None:
        self._count = count

        def told(row: Any) -> Any:
            here = tf.identity(row)  # On the replica's device, which arguments do not tell.
            return tf.distribute.get_replica_context().all_gather(here, axis=0)

        self._gather = tf.function(lambda row: strategy.run(told, args=(row,)))

    def gather(self, numbers: Any) -> Any:
        """Return what each process has, a row per process."""
        mine = np.asarray(numbers)[None]
        return mine if self._count == 1 else self._gather(tf.constant(mine)).numpy()


def optimizer(spec: RunSpec) -> Any:
    """Return the run's optimizer."""
    rate = spec.lr * spec.lr_factor
    if spec.optimizer == "sgd":
        made: Any = keras.optimizers.SGD(rate, momentum=MOMENTUM)
    elif spec.optimizer == "adam":
        made = keras.optimizers.Adam(rate, epsilon=EPSILON)
    else:
        made = keras.optimizers.AdamW(rate, weight_decay=DECAY, epsilon=EPSILON)
    return keras.optimizers.LossScaleOptimizer(made) if spec.precision == "fp16" else made


def build(spec: RunSpec, shape: tuple[int, int, int], classes: int) -> Any:
    """Return the run's model, its weights drawn at the run's seed."""
    keras.utils.set_random_seed(spec.seed + spec.repeat)
    keras.config.set_dtype_policy(POLICIES.get(spec.precision, "float32"))
    factory = part("workloads", str(spec.workload))
    try:
        return factory(shape, classes, **options_for(factory, spec))
    except ValueError as bad:
        raise SpecError(
            f"{spec.workload} cannot be built for images of {shape} "
            f"with options {dict(spec.options)}: {bad}",
            hint="look at its options",
        ) from bad


class TensorFlowSession(Session):
    """Steps on the replicas of one process."""

    def __init__(
        self,
        spec: RunSpec,
        data: Arrays,
        parallel: Parallel,
        everyone: Everyone,
        names: list[str],
    ) -> None:
        _refuse_precision(spec, names)
        self._spec, self._parallel, self._everyone, self._names = spec, parallel, everyone, names
        self._look = data.transform
        shards = [Shards(len(data.train), spec, replica) for replica in parallel.replicas]
        steps = steps_of(spec, len(data.train))
        total = steps * (spec.epochs or 1)
        self._rates = Rates.of(spec, shards[0].steps, total)
        self._plan = [sum(sum(each.counts(n)) for each in shards) for n in range(shards[0].steps)]
        """This process's samples in each step of a pass."""
        self._batches = loader.training(data.train, shards, parallel)
        self._looks, self._checks = loader.checking(data.validation, spec, parallel)
        self._validation = len(data.validation)
        with parallel.strategy.scope():
            self._model = build(spec, data.shape, data.classes)
            self._optimizer = optimizer(spec)
            self._optimizer.build(self._model.trainable_variables)
        _own_chance(self._model, parallel)
        self._one_step = tf.function(self._train)
        self._one_look = tf.function(self._evaluate)
        learnt = tf.function(self._learnt, jit_compile=True) if spec.compile else self._learnt
        self._forward_backward = learnt
        self._step, self._taken, self._epoch = 0, 0, 0
        self._told: list[tuple[float, float, int]] = []
        """Of each step since ``begin``: loss, right answers and samples of this process."""
        self._bar = bar(spec, steps) if 0 in parallel.replicas else None
        self._figures: dict[str, float] = {}
        self.outline = Outline(
            epochs=spec.epochs,
            steps=steps,
            samples=len(data.train),
            seen=in_steps(steps, self._plan),
            parameters=sum(int(np.prod(each.shape)) for each in self._model.trainable_variables),
            uncounted="TensorFlow tells no operations",
            validation=len(data.validation),
            rates=str(self._rates),
        )

    def trace(self) -> None:
        """Make the graphs of a step and of a look before the first of them."""
        one = self._batches.element_spec
        self._one_step.get_concrete_function((one,) * self._spec.accumulate)
        self._one_look.get_concrete_function(self._checks.element_spec)

    def _train(self, batches: Any) -> Any:
        """Do a step on every replica of this process; return their losses and right answers."""
        sums = self._parallel.strategy.run(self._on_replica, args=(batches,))
        return tf.add_n(self._parallel.strategy.experimental_local_results(sums))

    def _on_replica(self, batches: Any) -> Any:
        """Learn from the micro-batches of one replica; gradients are added up over all."""
        told, gradients = self._forward_backward(*batches[0])
        for more in batches[1:]:
            also, others = self._forward_backward(*more)
            told += also
            gradients = [one + other for one, other in zip(gradients, others)]
        self._optimizer.apply(gradients, self._model.trainable_variables)
        return told

    def _learnt(self, images: Any, labels: Any, weight: Any) -> Any:
        """Return this replica's part of the loss, with its right answers, and its gradients."""
        with tf.GradientTape() as tape:
            output = self._model(loader.finish(self._look, images), training=True)
            loss = tf.reduce_mean(_each_loss(output, labels)) * weight / self._spec.replicas
            scaled = self._optimizer.scale_loss(loss) if self._spec.precision == "fp16" else loss
        told = tf.stack([loss, tf.reduce_sum(_right(output, labels))])
        return told, tape.gradient(scaled, self._model.trainable_variables)

    def _evaluate(self, batch: Any) -> Any:
        def look(images: Any, labels: Any, count: Any) -> Any:
            output = self._model(loader.finish(self._look, images), training=False)
            counts = tf.cast(tf.range(tf.shape(labels)[0]) < tf.cast(count, tf.int32), tf.float32)
            right, losses = _right(output, labels), _each_loss(output, labels)
            return tf.stack([tf.reduce_sum(right * counts), tf.reduce_sum(losses * counts)])

        sums = self._parallel.strategy.run(look, args=batch)
        return tf.add_n(self._parallel.strategy.experimental_local_results(sums))

    def begin(self, epoch: int) -> None:
        """Start a pass: its batches come after those of the one before."""
        self._told, self._step, self._epoch = [], 0, epoch
        if self._bar:
            self._bar.on_epoch_begin(epoch)

    def step(self, probe: Laps) -> int:
        """Do one optimizer step, which TensorFlow does in one piece; return its samples."""
        if self._step == len(self._plan):
            self._step = 0
        if not self._rates.constant:
            self._optimizer.learning_rate = self._rates.at(self._taken)
        batches = tuple(next(self._batches) for _ in range(self._spec.accumulate))
        probe.lap("input")
        loss, right = self._one_step(batches).numpy()
        probe.lap("step")
        samples = self._plan[self._step]
        self._told.append((loss, right, samples))
        self._step += 1
        self._taken += 1
        return samples

    def settle(self) -> None:
        """Wait for nothing: a step ends when its loss is here."""

    def losses(self) -> list[float]:
        """Return the loss of each step since ``begin``, over all replicas."""
        if not self._told:
            return []
        losses, right, samples = self._everyone.gather(self._told).sum(axis=0).T
        self._figures = {
            "loss": float(np.average(losses, weights=samples)),
            "accuracy": float(right.sum() / samples.sum()),
        }
        if not self._spec.validates(self._epoch):
            self._end_line()
        return [round(float(loss), 9) for loss in losses]

    def validate(self) -> Quality:
        """Return the quality now, each validation sample counted once."""
        sums = np.zeros(2)
        for _ in range(self._looks):
            sums += self._one_look(next(self._checks)).numpy()
        right, loss = self._everyone.gather(sums).sum(axis=0) / self._validation
        self._figures |= {"val_loss": float(loss), "val_accuracy": float(right)}
        self._end_line()
        return Quality(accuracy=float(right), loss=float(loss), samples=self._validation)

    def _end_line(self) -> None:
        """Have Keras print how the pass went."""
        if self._bar:
            self._bar.on_epoch_end(self._epoch, self._figures)

    def memory(self) -> int | None:
        """Return the peak bytes this process has held, for all its devices."""
        return devices.peak_memory(self._names)

    def save(self, path: Path) -> None:
        """Write the weights once, in Keras's own format."""
        if 0 in self._parallel.replicas:
            self._model.save_weights(path.with_name("model.weights.h5"))


def bar(spec: RunSpec, steps: int) -> Any:
    """Return Keras's own progress bar, which tells a log as much as ``fit`` would."""
    return keras.callbacks.CallbackList(
        add_progbar=True, verbose=2, epochs=spec.epochs or 1, steps=steps
    )


def _own_chance(model: Any, parallel: Parallel) -> None:
    """Have each replica leave out other units than the others: their seeds begin alike."""
    for layer in model.layers:
        if hasattr(layer, "seed_generator"):
            states = parallel.strategy.experimental_local_results(layer.seed_generator.state.value)
            for replica, own in zip(parallel.replicas, states):
                own.assign_add(tf.constant([replica, 0], own.dtype))


def _right(output: Any, labels: Any) -> Any:
    return tf.cast(tf.argmax(output, -1) == labels, tf.float32)


def _each_loss(output: Any, labels: Any) -> Any:
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, tf.cast(output, tf.float32))


def _refuse_precision(spec: RunSpec, names: list[str]) -> None:
    """Refuse tf32 where there is none, and let no other run have it unasked."""
    if spec.precision == "tf32" and names[0].startswith("CPU"):
        raise SpecError(
            "tf32 is a mode of CUDA devices, and this process has CPUs",
            hint='write precision = "fp32"',
        )
    tf.config.experimental.enable_tensor_float_32_execution(spec.precision == "tf32")
