"""The workloads: pure functions of weights and images."""

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
    """A network without state: its weights are given to it."""

    begin: Callable[[np.random.Generator], dict[str, np.ndarray[Any, Any]]]
    """Draws weights under the names, and in the shapes, that the same network has in PyTorch."""
    output: Callable[[Weights, Any, Any], Any]
    """Takes weights, images (count × height × width × channels) and a key of chance, which is
    nothing where the model is only looked at; returns the logits."""


def linear(name: str, inputs: int, outputs: int) -> Shapes:
    """Return the weights of a dense layer."""
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def convolution(name: str, inputs: int, outputs: int, edge: int) -> Shapes:
    """Return the weights of a convolution."""
    return {f"{name}.weight": (outputs, inputs, edge, edge), f"{name}.bias": (outputs,)}


def drawn(shapes: Shapes, chance: np.random.Generator) -> dict[str, np.ndarray[Any, Any]]:
    """Draw the weights of layers as PyTorch does: evenly, below 1/√(inputs of one output)."""
    found: dict[str, np.ndarray[Any, Any]] = {}
    bound = 0.0
    for name, shape in shapes.items():
        if name.endswith(".weight"):
            bound = 1 / sqrt(np.prod(shape[1:]))
        found[name] = chance.uniform(-bound, bound, shape).astype(np.float32)
    return found


def dense(weights: Weights, name: str, x: Any) -> Any:
    """Do a dense layer."""
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def convolve(weights: Weights, name: str, x: Any, stride: int = 1) -> Any:
    """Do a convolution without padding."""
    layout = ("NHWC", "OIHW", "NHWC")
    kernel = weights[f"{name}.weight"]
    out = jax.lax.conv_general_dilated(
        x, kernel, (stride, stride), "VALID", dimension_numbers=layout
    )
    return out + weights[f"{name}.bias"]


def dropped(x: Any, share: float, key: Any) -> Any:
    """Let chance turn a share of the numbers to 0, the others grow for it; all stay without key."""
    if key is None or not share:
        return x
    kept = jax.random.bernoulli(key, 1 - share, x.shape)
    return jax.numpy.where(kept, x / max(1 - share, 1e-9), 0).astype(x.dtype)
