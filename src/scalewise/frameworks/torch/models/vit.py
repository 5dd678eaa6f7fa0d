"""Vision transformers: an image is a sequence of patches."""

from functools import partial
from math import sqrt

import torch
from torch import Tensor, nn

from scalewise.frameworks.torch.models.parts import Parts, blocks_of, image_shape
from scalewise.frameworks.torch.models.transformer import Size, transformer


class Mean(nn.Module):
    """Averages all positions."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1)


class First(nn.Module):
    """Returns only the first position, which is the class token's."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, 0]


class ClassToken(nn.Module):
    """Prepends a learned class token to the sequence."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.weight.expand(len(x), 1, -1).to(x.dtype), x], 1)


class Patches(nn.Module):
    """Projects each patch of an image to a token."""

    def __init__(self, channels: int, patch: int, width: int) -> None:
        super().__init__()
        self.project = nn.Conv2d(channels, width, patch, stride=patch)

    def forward(self, x: Tensor) -> Tensor:
        # Pipeline stages can send only contiguous tensors.
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
    class_token: bool = False,
) -> Parts:
    """Return a ViT that classifies the mean over all positions. With ``class_token``, return the
    model of Dosovitskiy et al. (arXiv:2010.11929), initialized as in torchvision.
    """
    channels, height, image_width = image_shape(shape)
    if height % patch or image_width % patch:
        raise ValueError(f"patches of {patch} do not fit an image of {height}x{image_width}")
    size, length = Size(width, depth, heads), (height // patch) * (image_width // patch)
    before_blocks: dict[str, nn.Module] = {"patches": Patches(channels, patch, width)}
    head = nn.Linear(width, classes)
    if not class_token:
        after_blocks = {"norm": nn.LayerNorm(width), "mean": Mean(), "head": head}
        return transformer(before_blocks, after_blocks, size, length=length, causal=False)
    before_blocks["token"] = ClassToken(width)
    after_blocks = {"first": First(), "norm": nn.LayerNorm(width, 1e-6), "head": head}
    length += 1  # The class token.
    model = transformer(
        before_blocks, after_blocks, size, length=length, causal=False, epsilon=1e-6
    )
    return _initialize(model)


@torch.no_grad()
def _initialize(model: Parts) -> Parts:
    """Draw weights that preserve the variance of activations; the classifier starts at zero."""
    project = model.get_parameter("patches.project.weight")
    nn.init.trunc_normal_(project, std=1 / sqrt(project[0].numel()))
    for name in ("patches.project.bias", "head.weight", "head.bias"):
        nn.init.zeros_(model.get_parameter(name))
    for block in blocks_of(model):
        for name in ("attention.qkv", "attention.out", "dense.0", "dense.2"):
            if name != "attention.out":  # Its weights keep the default of nn.Linear.
                nn.init.xavier_uniform_(block.get_parameter(f"{name}.weight"))
            nn.init.zeros_(block.get_parameter(f"{name}.bias"))
    return model


def _published(width: int, depth: int, heads: int, patch: int) -> partial[Parts]:
    return partial(vit, patch=patch, width=width, depth=depth, heads=heads, class_token=True)


vit_ti14, vit_ti16 = (_published(192, 12, 3, patch) for patch in (14, 16))
vit_s14, vit_s16 = (_published(384, 12, 6, patch) for patch in (14, 16))
vit_b14, vit_b16 = (_published(768, 12, 12, patch) for patch in (14, 16))
vit_l14, vit_l16 = (_published(1024, 24, 16, patch) for patch in (14, 16))
vit_h14, vit_h16 = (_published(1280, 32, 16, patch) for patch in (14, 16))
