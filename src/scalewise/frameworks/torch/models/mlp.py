"""A wide dense network on grey pixels."""

from collections.abc import Sequence
from math import prod

from torch import nn

HIDDEN = (8192, 4096, 2048, 1024, 512, 256, 128, 64)


def mlp(shape: tuple[int, int, int], classes: int, *, hidden: Sequence[int] = HIDDEN) -> nn.Module:
    """Dense layers that halve from 8192 units to 64: much to send, little to compute."""
    layers: list[nn.Module] = [nn.Flatten()]
    width = prod(shape)
    for units in hidden:
        layers += [nn.Linear(width, units), nn.ReLU()]
        width = units
    return nn.Sequential(*layers, nn.Linear(width, classes))
