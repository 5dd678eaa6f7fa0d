"""One optimizer step as one function of arrays, which XLA makes one program of."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scalewise.frameworks.in_memory_data import ImageTransform
from scalewise.frameworks.jax.models import Model
from scalewise.frameworks.jax.optimizers import Optimizer, optimizer
from scalewise.frameworks.sampler import NOBODY
from scalewise.spec import RunSpec


class State(NamedTuple):
    """All that a step changes."""

    weights: Any
    kept: Any
    """What the optimizer keeps of gradients."""
    done: Any
    """How many steps are done."""


def begin(spec: RunSpec, weights: dict[str, Any]) -> State:
    """Return the state before the first step."""
    return State(weights, optimizer(spec.optimizer).begin(weights), np.zeros((), np.int32))


def one_step(spec: RunSpec, model: Model, look: ImageTransform) -> Callable[..., tuple[State, Any]]:
    """Return the function of a step: of a state, images, labels and a rate, a state and the loss.

    Images and labels have micro-steps first. The loss is the mean over the samples of the global
    batch, wherever they are, and so are its gradients.
    """
    rule: Optimizer = optimizer(spec.optimizer)
    loss = _loss(spec, model, look)

    def step(state: State, images: Any, labels: Any, rate: Any) -> tuple[State, Any]:
        key = jax.random.fold_in(jax.random.key(spec.seed + spec.repeat), state.done)
        samples = (labels != NOBODY).sum()
        ask = jax.value_and_grad(lambda *given: loss(*given)[0] / samples)

        def micro(sums: Any, given: Any) -> tuple[Any, None]:
            number, *batch = given
            found = ask(state.weights, *batch, jax.random.fold_in(key, number))
            return jax.tree.map(jnp.add, sums, found), None

        if spec.accumulate == 1:
            value, gradients = ask(state.weights, images[0], labels[0], key)
        else:
            nothing = jnp.zeros(()), jax.tree.map(jnp.zeros_like, state.weights)
            every = jnp.arange(spec.accumulate), images, labels
            # In a loop of XLA's, CPUs convolve many times slower.
            on_cpu = jax.default_backend() == "cpu"
            (value, gradients), _ = jax.lax.scan(micro, nothing, every, unroll=on_cpu)
        if spec.clip is not None:
            gradients = _clipped(gradients, spec.clip)
        weights, kept = rule.learn(state.weights, gradients, state.kept, rate, state.done)
        return State(weights, kept, state.done + 1), value

    return step


def score(spec: RunSpec, model: Model, look: ImageTransform) -> Callable[..., Any]:
    """Return the function that adds to sums of right samples, losses and samples."""
    loss = _loss(spec, model, look)

    def add(sums: Any, weights: Any, images: Any, labels: Any) -> Any:
        value, logits = loss(weights, images[0], labels[0], None)
        right = (logits.argmax(-1) == labels[0]).sum()
        return sums + jnp.stack([right, value, (labels != NOBODY).sum()])

    return add


def _loss(spec: RunSpec, model: Model, look: ImageTransform) -> Callable[..., tuple[Any, Any]]:
    """Return the function of the summed loss of a batch, and its logits."""
    numbers = jnp.bfloat16 if spec.precision == "bf16" else jnp.float32

    def loss(weights: Any, images: Any, labels: Any, key: Any) -> tuple[Any, Any]:
        cast = jax.tree.map(lambda each: each.astype(numbers), weights)
        logits = model.output(cast, seen(images, look).astype(numbers), key).astype(jnp.float32)
        # Nobody's label has no place among the classes, and adds nothing.
        meant = jax.nn.one_hot(labels, logits.shape[-1])
        return -(meant * jax.nn.log_softmax(logits)).sum(), logits

    return loss


def seen(images: Any, look: ImageTransform) -> Any:
    """Return what a model sees of stored images."""
    count, *edges, channels = images.shape
    x = images.astype(jnp.float32)
    if look.edge and edges != [look.edge, look.edge]:
        x = jax.image.resize(x, (count, look.edge, look.edge, channels), "bilinear")
    x = x * (look.scale or 1.0)
    if look.mean_std:
        mean, spread = np.array(look.mean_std, np.float32)
        x = (x - mean) / spread
    return x


def _clipped(gradients: Any, most: float) -> Any:
    """Shrink gradients whose norm, of all together, is larger."""
    norm = jnp.sqrt(sum((each**2).sum() for each in jax.tree.leaves(gradients)))
    factor = jnp.minimum(1.0, most / (norm + 1e-6))
    return jax.tree.map(lambda each: each * factor, gradients)
