"""The small convolutional network of the MNIST examples."""

from typing import Any

import jax
from jax import lax

from scalewise.frameworks.jax import models
from scalewise.frameworks.jax.models import Model, Weights, convolve, dense, draw_weights, layer


def mnist_cnn(shape: tuple[int, int, int], classes: int, *, dropout: float = 0.25) -> Model:
    """Return two convolutions, a pool and two dense layers; 1.2 M parameters for 28x28 pixels."""
    channels, height, width = shape
    if min(height, width) < 6:
        raise ValueError("two convolutions and a pool need 6 pixels a side")
    if not 0 <= dropout <= 1:
        raise ValueError(f"dropout is a share from 0 to 1, got {dropout}")
    flat = 64 * ((height - 4) // 2) * ((width - 4) // 2)
    shapes = {  # Names are the layers' positions in PyTorch's nn.Sequential.
        **layer("0", channels, 32, 3, 3),
        **layer("2", 32, 64, 3, 3),
        **layer("7", flat, 128),
        **layer("10", 128, classes),
    }

    def output(weights: Weights, x: Any, key: Any) -> Any:
        first_key, second_key = (None, None) if key is None else jax.random.split(key)
        x = jax.nn.relu(convolve(weights, "0", x))
        x = jax.nn.relu(convolve(weights, "2", x))
        x = lax.reduce_window(x, -jax.numpy.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        x = models.dropout(x, dropout, first_key)
        x = x.transpose(0, 3, 1, 2).reshape(len(x), -1)  # Channels first, as PyTorch flattens them.
        x = jax.nn.relu(dense(weights, "7", x))
        return dense(weights, "10", models.dropout(x, min(1.0, 2 * dropout), second_key))

    return Model(lambda rng: draw_weights(shapes, rng), output)
