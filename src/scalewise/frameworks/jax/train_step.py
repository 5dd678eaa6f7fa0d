"""One optimizer step as one pure function, which XLA compiles to one program."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from scalewise.frameworks.in_memory_data import ImageTransform
from scalewise.frameworks.jax.models import Model
from scalewise.frameworks.sampler import NO_SAMPLE
from scalewise.spec import RunSpec

MOMENTUM = 0.9
ADAMW_DECAY = 0.01
"""PyTorch's default."""


class State(NamedTuple):
    """Everything that a step changes."""

    weights: Any
    optimizer: Any
    """optax's state: momentum, or the moments of Adam."""
    step: Any
    """Steps done."""


def make_optimizer(name: str) -> optax.GradientTransformation:
    """Return sgd, adam or adamw as in PyTorch; the training step applies the learning rate."""
    if name == "sgd":
        return optax.trace(decay=MOMENTUM)
    adam = optax.scale_by_adam(b1=0.9, b2=0.999, eps=1e-8)
    return optax.chain(adam, optax.add_decayed_weights(ADAMW_DECAY)) if name == "adamw" else adam


def initial_state(spec: RunSpec, weights: dict[str, Any]) -> State:
    """Return the state before the first step, as numpy arrays."""
    optimizer = make_optimizer(spec.optimizer).init(weights)
    return State(weights, jax.tree.map(np.asarray, optimizer), np.zeros((), np.int32))


def make_train_step(
    spec: RunSpec, model: Model, transform: ImageTransform
) -> Callable[..., tuple[State, Any]]:
    """Return a function (state, images, labels, learning rate) -> (state, loss).

    The first axis is the micro-step; the loss is the mean over the samples of the global batch.
    """
    optimizer = make_optimizer(spec.optimizer)
    loss_and_logits = _make_loss(spec, model, transform)

    def train_step(state: State, images: Any, labels: Any, rate: Any) -> tuple[State, Any]:
        key = jax.random.fold_in(jax.random.key(spec.seed + spec.repeat), state.step)
        samples = (labels != NO_SAMPLE).sum()
        loss_and_gradients = jax.value_and_grad(lambda *args: loss_and_logits(*args)[0] / samples)

        def add_micro_step(sums: Any, micro_step: Any) -> tuple[Any, None]:
            index, *batch = micro_step
            result = loss_and_gradients(state.weights, *batch, jax.random.fold_in(key, index))
            return jax.tree.map(jnp.add, sums, result), None

        if spec.accumulate == 1:
            loss, gradients = loss_and_gradients(state.weights, images[0], labels[0], key)
        else:
            zeros = jnp.zeros(()), jax.tree.map(jnp.zeros_like, state.weights)
            micro_steps = jnp.arange(spec.accumulate), images, labels
            # Unrolled on CPUs: convolutions inside of an XLA loop are many times slower there.
            on_cpu = jax.default_backend() == "cpu"
            (loss, gradients), _ = jax.lax.scan(add_micro_step, zeros, micro_steps, unroll=on_cpu)
        if spec.clip is not None:
            # PyTorch's formula: optax.clip_by_global_norm has no 1e-6 in the denominator.
            factor = jnp.minimum(1.0, spec.clip / (optax.global_norm(gradients) + 1e-6))
            gradients = jax.tree.map(lambda gradient: gradient * factor, gradients)
        updates, moments = optimizer.update(gradients, state.optimizer, state.weights)
        weights = jax.tree.map(lambda weight, delta: weight - rate * delta, state.weights, updates)
        return State(weights, moments, state.step + 1), loss

    return train_step


def make_eval(spec: RunSpec, model: Model, transform: ImageTransform) -> Callable[..., Any]:
    """Return a function that adds a micro-step's correct samples, losses and samples to sums."""
    loss_and_logits = _make_loss(spec, model, transform)

    def add_batch(sums: Any, weights: Any, images: Any, labels: Any) -> Any:
        loss, logits = loss_and_logits(weights, images[0], labels[0], None)
        correct = (logits.argmax(-1) == labels[0]).sum()
        return sums + jnp.stack([correct, loss, (labels != NO_SAMPLE).sum()])

    return add_batch


def _make_loss(
    spec: RunSpec, model: Model, transform: ImageTransform
) -> Callable[..., tuple[Any, Any]]:
    """Return a function that computes a batch's summed loss and logits; key None: no dropout."""
    dtype = jnp.bfloat16 if spec.precision == "bf16" else jnp.float32

    def loss_and_logits(weights: Any, images: Any, labels: Any, key: Any) -> tuple[Any, Any]:
        cast_weights = jax.tree.map(lambda weight: weight.astype(dtype), weights)
        inputs = transform_images(images, transform).astype(dtype)
        logits = model.output(cast_weights, inputs, key).astype(jnp.float32)
        # The one-hot row of NO_SAMPLE is all zeros: it adds 0 to the loss.
        targets = jax.nn.one_hot(labels, logits.shape[-1])
        return -(targets * jax.nn.log_softmax(logits)).sum(), logits

    return loss_and_logits


def transform_images(images: Any, transform: ImageTransform) -> Any:
    """Return stored images as the model sees them: resized, scaled, normalized."""
    count, *edges, channels = images.shape
    x = images.astype(jnp.float32)
    if transform.edge and edges != [transform.edge, transform.edge]:
        x = jax.image.resize(x, (count, transform.edge, transform.edge, channels), "bilinear")
    x = x * (transform.scale or 1.0)
    if transform.mean_std:
        mean, std = np.array(transform.mean_std, np.float32)
        x = (x - mean) / std
    return x
