"""A wide multi-layer perceptron on the grey values of an image."""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from scalewise.frameworks.torch.models.parts import Parts, Seams, image_shape

HIDDEN = (8192, 4096, 2048, 1024, 512, 256, 128, 64)


class Grey(nn.Module):
    """Averages the channels of an image and flattens its pixels."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1).flatten(1)


def mlp(shape: tuple[int, int, int], classes: int, *, hidden: Sequence[int] = HIDDEN) -> Parts:
    """Return dense layers: many gradients to exchange in data parallelism, little computation."""
    _, height, width = image_shape(shape)
    widths = [height * width, *hidden]
    layers = [nn.Sequential(nn.Linear(*sizes), nn.ReLU()) for sizes in pairwise(widths)]
    # In tensor parallelism the first layer of a pair is split by columns, the second by rows.
    pairs = [nn.Sequential(*layers[n : n + 2]) for n in range(0, len(layers), 2)]
    return Parts(
        {"grey": Grey()},
        {f"block{n}": pair for n, pair in enumerate(pairs)},
        {"head": nn.Linear(widths[-1], classes)},
        Seams(columns=("0.0",), rows=("1.0",)),  # The nn.Linear of each layer in a pair.
    )
