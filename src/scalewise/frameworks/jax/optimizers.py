"""How weights learn from gradients, with PyTorch's numbers and in its order of operations."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

MOMENTUM = 0.9
BETAS = (0.9, 0.999)
EPSILON = 1e-8
DECAY = 0.01
"""Share of the weights, times the rate, that AdamW takes away in each step."""

Tree = Any
"""Arrays by name."""


@dataclass(frozen=True, slots=True)
class Optimizer:
    """What is kept of gradients, and what is done with it."""

    begin: Callable[[Tree], Tree]
    """Returns what is kept at first, for these weights."""
    learn: Callable[[Tree, Tree, Tree, Any, Any], tuple[Tree, Tree]]
    """Takes weights, gradients, what is kept, the rate and how many steps are done."""


def optimizer(name: str) -> Optimizer:
    """Return the optimizer of this name."""
    if name == "sgd":
        return Optimizer(_nothing, _sgd)
    return Optimizer(
        lambda weights: (_nothing(weights), _nothing(weights)),
        _adam(DECAY if name == "adamw" else 0.0),
    )


def _nothing(weights: Tree) -> Tree:
    return jax.tree.map(np.zeros_like, weights)


def _sgd(weights: Tree, gradients: Tree, kept: Tree, rate: Any, done: Any) -> tuple[Tree, Tree]:
    kept = jax.tree.map(lambda old, new: MOMENTUM * old + new, kept, gradients)
    return jax.tree.map(lambda weight, by: weight - rate * by, weights, kept), kept


def _adam(decay: float) -> Callable[[Tree, Tree, Tree, Any, Any], tuple[Tree, Tree]]:
    first, second = BETAS

    def learn(
        weights: Tree, gradients: Tree, kept: Tree, rate: Any, done: Any
    ) -> tuple[Tree, Tree]:
        means = jax.tree.map(lambda old, new: first * old + (1 - first) * new, kept[0], gradients)
        squares = jax.tree.map(
            lambda old, new: second * old + (1 - second) * new * new, kept[1], gradients
        )
        step = (done + 1).astype(jnp.float32)
        size, root = rate / (1 - first**step), jnp.sqrt(1 - second**step)

        def change(weight: Any, mean: Any, square: Any) -> Any:
            by = size * mean / (jnp.sqrt(square) / root + EPSILON)
            return weight * (1 - rate * decay) - by

        return jax.tree.map(change, weights, means, squares), (means, squares)

    return learn
