"""A vision transformer: an image is a sequence of patches."""

from torch import Tensor, nn

from scalewise.frameworks.torch.models.parts import Parts
from scalewise.frameworks.torch.models.transformer import transformer


class Mean(nn.Module):
    """Puts all positions together."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1)


class Patches(nn.Module):
    """Makes a position of each square of an image."""

    def __init__(self, channels: int, patch: int, width: int) -> None:
        super().__init__()
        self.project = nn.Conv2d(channels, width, patch, stride=patch)

    def forward(self, x: Tensor) -> Tensor:
        # A stage of a pipeline sends what it makes of this, and only whole memory can be sent.
        out: Tensor = self.project(x).flatten(2).transpose(1, 2).contiguous()
        return out


def vit(
    shape: tuple[int, int, int],
    classes: int,
    *,
    patch: int = 4,
    width: int = 192,
    depth: int = 6,
    heads: int = 4,
) -> Parts:
    """A plain ViT with the mean of all positions before its classifier."""
    channels, height, across = shape
    if height % patch or across % patch:
        raise ValueError(f"patches of {patch} do not fit an image of {height}x{across}")
    return transformer(
        {"patches": Patches(channels, patch, width)},
        {"mean": Mean(), "head": nn.Linear(width, classes)},
        length=(height // patch) * (across // patch),
        width=width,
        depth=depth,
        heads=heads,
        causal=False,
    )
