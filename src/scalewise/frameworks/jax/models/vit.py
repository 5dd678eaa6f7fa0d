"""A vision transformer: an image is a sequence of patches."""

from math import sqrt
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scalewise.frameworks.jax.models import Model, Weights, convolve, dense, draw_weights, layer

POSITION_STD = 0.02
"""Standard deviation of the initial position embeddings."""
EPSILON = 1e-5
"""Added to the variance in layer norms, as in PyTorch."""


def vit(
    shape: tuple[int, int, int],
    classes: int,
    *,
    patch: int = 4,
    width: int = 192,
    depth: int = 6,
    heads: int = 4,
) -> Model:
    """Return a plain ViT that classifies the mean over all positions."""
    channels, height, image_width = shape
    if height % patch or image_width % patch:
        raise ValueError(f"patches of {patch} do not fit an image of {height}x{image_width}")
    if width % heads:
        raise ValueError(f"width {width} does not divide over {heads} heads")
    length = (height // patch) * (image_width // patch)
    blocks = [f"block{n}" for n in range(depth)]

    def init(rng: np.random.Generator) -> dict[str, np.ndarray[Any, Any]]:
        weights = draw_weights(layer("patches.project", channels, width, patch, patch), rng)
        positions = rng.normal(0, POSITION_STD, (length, width))
        weights["positions.weight"] = positions.astype(np.float32)
        for block in blocks:
            weights |= _norm_weights(f"{block}.norm", width)
            weights |= draw_weights(layer(f"{block}.attention.qkv", width, 3 * width), rng)
            weights |= draw_weights(layer(f"{block}.attention.out", width, width), rng)
            weights |= _norm_weights(f"{block}.norm2", width)
            weights |= draw_weights(layer(f"{block}.dense.0", width, 4 * width), rng)
            weights |= draw_weights(layer(f"{block}.dense.2", 4 * width, width), rng)
        head = draw_weights(layer("head", width, classes), rng)
        return weights | _norm_weights("norm", width) | head

    def output(weights: Weights, x: Any, key: Any) -> Any:
        patches = convolve(weights, "patches.project", x, stride=patch)  # Channels come last.
        x = patches.reshape(len(x), length, width)
        x = x + weights["positions.weight"]
        for block in blocks:
            block_weights = {
                name.removeprefix(f"{block}."): weight
                for name, weight in weights.items()
                if name.startswith(f"{block}.")
            }
            x = x + _attention(block_weights, _layer_norm(block_weights, "norm", x), heads)
            hidden = dense(block_weights, "dense.0", _layer_norm(block_weights, "norm2", x))
            x = x + dense(block_weights, "dense.2", jax.nn.gelu(hidden, approximate=False))
        return dense(weights, "head", _layer_norm(weights, "norm", x).mean(1))

    return Model(init, output)


def _norm_weights(name: str, width: int) -> dict[str, np.ndarray[Any, Any]]:
    return {
        f"{name}.weight": np.ones(width, np.float32),
        f"{name}.bias": np.zeros(width, np.float32),
    }


def _layer_norm(weights: Weights, name: str, x: Any) -> Any:
    """Apply a layer norm, computed in 32 bits."""
    x32 = x.astype(jnp.float32)
    mean = x32.mean(-1, keepdims=True)
    variance = ((x32 - mean) ** 2).mean(-1, keepdims=True)
    normalized = ((x32 - mean) * jax.lax.rsqrt(variance + EPSILON)).astype(x.dtype)
    return normalized * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def _attention(weights: Weights, x: Any, heads: int) -> Any:
    """Apply multi-head self-attention; the rows of ``qkv`` are ordered head by head."""
    count, length, width = x.shape
    size = width // heads
    qkv = dense(weights, "attention.qkv", x).reshape(count, length, heads, 3, size)
    query, key, value = (qkv[:, :, :, n] for n in range(3))
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) / sqrt(size)
    attention = jax.nn.softmax(scores.astype(jnp.float32)).astype(x.dtype)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", attention, value).reshape(count, length, width)
    return dense(weights, "attention.out", mixed)
