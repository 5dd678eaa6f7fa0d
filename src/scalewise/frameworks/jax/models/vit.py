"""A vision transformer: an image is a sequence of patches."""

from math import sqrt
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scalewise.frameworks.jax.models import (
    Model,
    Weights,
    convolution,
    convolve,
    dense,
    drawn,
    linear,
)

SPREAD = 0.02
"""Of what is learned of each position, at first."""
EPSILON = 1e-5
"""Keeps a norm from dividing by nothing."""


def vit(
    shape: tuple[int, int, int],
    classes: int,
    *,
    patch: int = 4,
    width: int = 192,
    depth: int = 6,
    heads: int = 4,
) -> Model:
    """A plain ViT with the mean of all positions before its classifier."""
    channels, height, across = shape
    if height % patch or across % patch:
        raise ValueError(f"patches of {patch} do not fit an image of {height}x{across}")
    if width % heads:
        raise ValueError(f"width {width} does not divide over {heads} heads")
    length = (height // patch) * (across // patch)
    blocks = [f"block{n}" for n in range(depth)]

    def begin(chance: np.random.Generator) -> dict[str, np.ndarray[Any, Any]]:
        weights = drawn(convolution("patches.project", channels, width, patch), chance)
        weights["positions.weight"] = _near(chance, (length, width))
        for block in blocks:
            weights |= _norm(f"{block}.norm", width)
            weights |= drawn(linear(f"{block}.attention.qkv", width, 3 * width), chance)
            weights |= drawn(linear(f"{block}.attention.out", width, width), chance)
            weights |= _norm(f"{block}.norm2", width)
            weights |= drawn(linear(f"{block}.dense.0", width, 4 * width), chance)
            weights |= drawn(linear(f"{block}.dense.2", 4 * width, width), chance)
        return weights | _norm("norm", width) | drawn(linear("head", width, classes), chance)

    def output(weights: Weights, x: Any, key: Any) -> Any:
        x = convolve(weights, "patches.project", x, stride=patch).reshape(len(x), length, width)
        x = x + weights["positions.weight"]
        for block in blocks:
            inside = {
                name.removeprefix(f"{block}."): each
                for name, each in weights.items()
                if name.startswith(f"{block}.")
            }
            x = x + _attention(inside, _normed(inside, "norm", x), heads)
            wide = jax.nn.gelu(
                dense(inside, "dense.0", _normed(inside, "norm2", x)), approximate=False
            )
            x = x + dense(inside, "dense.2", wide)
        return dense(weights, "head", _normed(weights, "norm", x).mean(1))

    return Model(begin, output)


def _near(chance: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Draw numbers near 0, as PyTorch does for what is learned of positions."""
    return chance.normal(0, SPREAD, shape).astype(np.float32)


def _norm(name: str, width: int) -> dict[str, np.ndarray[Any, Any]]:
    return {
        f"{name}.weight": np.ones(width, np.float32),
        f"{name}.bias": np.zeros(width, np.float32),
    }


def _normed(weights: Weights, name: str, x: Any) -> Any:
    """Do a layer norm; its sums are those of 32 bits."""
    wide = x.astype(jnp.float32)
    mean = wide.mean(-1, keepdims=True)
    spread = ((wide - mean) ** 2).mean(-1, keepdims=True)
    even = ((wide - mean) * jax.lax.rsqrt(spread + EPSILON)).astype(x.dtype)
    return even * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def _attention(weights: Weights, x: Any, heads: int) -> Any:
    """Let every position look at all; rows of ``qkv`` go head by head."""
    count, length, width = x.shape
    size = width // heads
    mixed = dense(weights, "attention.qkv", x).reshape(count, length, heads, 3, size)
    query, key, value = (mixed[:, :, :, n] for n in range(3))
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) / sqrt(size)
    shares = jax.nn.softmax(scores.astype(jnp.float32)).astype(x.dtype)
    seen = jnp.einsum("bhqk,bkhd->bqhd", shares, value).reshape(count, length, width)
    return dense(weights, "attention.out", seen)
