"""JAX's models: pure functions of weights and images."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any

import jax
import numpy as np

Weights = Mapping[str, Any]
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Model:
    """A stateless network: its weights are an argument."""

    init: Callable[[np.random.Generator], dict[str, np.ndarray[Any, Any]]]
    """Draws the weights, with the names and shapes that the same network has in PyTorch."""
    output: Callable[[Weights, Any, Any], Any]
    """(weights, images with channels last, random key or None in validation) -> logits."""


def layer(name: str, inputs: int, outputs: int, *kernel: int) -> Shapes:
    """Return the shapes of a layer's weights: a convolution with ``kernel`` sizes, else dense."""
    return {f"{name}.weight": (outputs, inputs, *kernel), f"{name}.bias": (outputs,)}


def draw_weights(shapes: Shapes, rng: np.random.Generator) -> dict[str, np.ndarray[Any, Any]]:
    """Draw the weights of layers as PyTorch does: uniform within ±1/√(inputs of one output)."""
    weights: dict[str, np.ndarray[Any, Any]] = {}
    bound = 0.0
    for name, shape in shapes.items():
        if name.endswith(".weight"):  # The bias that follows has the same bound.
            bound = 1 / sqrt(np.prod(shape[1:]))
        weights[name] = rng.uniform(-bound, bound, shape).astype(np.float32)
    return weights


def dense(weights: Weights, name: str, x: Any) -> Any:
    """Apply a dense layer."""
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def convolve(weights: Weights, name: str, x: Any, stride: int = 1) -> Any:
    """Apply a convolution without padding."""
    layout = ("NHWC", "OIHW", "NHWC")
    kernel = weights[f"{name}.weight"]
    out = jax.lax.conv_general_dilated(
        x, kernel, (stride, stride), "VALID", dimension_numbers=layout
    )
    return out + weights[f"{name}.bias"]


def dropout(x: Any, share: float, key: Any) -> Any:
    """Set a random share of the values to 0 and scale up the others; no change without a key."""
    if key is None or not share:
        return x
    mask = jax.random.bernoulli(key, 1 - share, x.shape)
    return jax.numpy.where(mask, x / max(1 - share, 1e-9), 0).astype(x.dtype)
