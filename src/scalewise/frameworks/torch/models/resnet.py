"""Residual networks: ResNet-50 as in torchvision, and version 2 as in Keras.

A bottleneck is three convolutions and a shortcut: ``narrow`` (1x1, to fewer channels), ``look``
(3x3) and ``widen`` (1x1). Names of submodules are names in saved weights and must not change.
"""

from collections.abc import Sequence
from functools import partial

from torch import Tensor, nn

from scalewise.frameworks.torch.models.parts import Parts, image_shape

EXPANSION = 4
"""The ratio of a bottleneck's output channels to its inner channels."""
WIDTHS = (64, 128, 256, 512)
"""The inner channels of the bottlenecks, from the first to the last."""


class Bottleneck(nn.Module):
    """Bottleneck of version 1.5: normalizes after each convolution; ``look`` has the stride."""

    def __init__(self, channels: int, narrow: int, stride: int) -> None:
        super().__init__()
        wide = EXPANSION * narrow
        self.narrow = _conv_norm(channels, narrow, 1)
        self.look = _conv_norm(narrow, narrow, 3, stride)
        self.widen = _conv_norm(narrow, wide, 1)
        self.relu = nn.ReLU(inplace=True)
        keeps_shape = stride == 1 and channels == wide
        self.shortcut = nn.Identity() if keeps_shape else _conv_norm(channels, wide, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.narrow(x))
        y = self.widen(self.relu(self.look(y)))
        out: Tensor = self.relu(y + self.shortcut(x))
        return out


class Preactivated(nn.Module):
    """Bottleneck of version 2: normalizes before each convolution (He et al., arXiv:1603.05027)."""

    def __init__(self, channels: int, narrow: int, stride: int, *, is_first: bool) -> None:
        super().__init__()
        wide = EXPANSION * narrow
        self.before = _norm_relu(channels)
        self.narrow = nn.Sequential(nn.Conv2d(channels, narrow, 1, bias=False), _norm_relu(narrow))
        look = nn.Conv2d(narrow, narrow, 3, stride, padding=1, bias=False)
        self.look = nn.Sequential(look, _norm_relu(narrow))
        self.widen = nn.Conv2d(narrow, wide, 1)
        self.shortcut: nn.Module = nn.Identity()
        if is_first:  # Of the bottlenecks of a width: it changes the number of channels.
            self.shortcut = nn.Conv2d(channels, wide, 1, stride)
        elif stride > 1:
            self.shortcut = nn.MaxPool2d(1, stride)
        self._is_first = is_first

    def forward(self, x: Tensor) -> Tensor:
        activated = self.before(x)
        y = self.widen(self.look(self.narrow(activated)))
        out: Tensor = y + self.shortcut(activated if self._is_first else x)
        return out


def resnet50(shape: tuple[int, int, int], classes: int) -> Parts:
    """Return ResNet-50, version 1.5: 25.6 M parameters with 1000 classes."""
    channels, _, _ = image_shape(shape)
    stem = nn.Sequential(
        nn.Conv2d(channels, 64, 7, 2, padding=3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, padding=1),
    )
    blocks: list[nn.Module] = []
    channels = 64
    for narrow, depth in zip(WIDTHS, (3, 4, 6, 3)):
        for index in range(depth):
            stride = 2 if index == 0 and narrow > WIDTHS[0] else 1  # 2 halves the image.
            blocks.append(Bottleneck(channels, narrow, stride))
            channels = EXPANSION * narrow
    model = _network(stem, blocks, {}, classes)
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return model


def _resnet_v2(depths: Sequence[int], shape: tuple[int, int, int], classes: int) -> Parts:
    """Return a ResNet version 2, with ``depths[i]`` bottlenecks of ``WIDTHS[i]``."""
    channels, _, _ = image_shape(shape)
    stem = nn.Sequential(nn.Conv2d(channels, 64, 7, 2, padding=3), nn.MaxPool2d(3, 2, padding=1))
    blocks: list[nn.Module] = []
    channels = 64
    for narrow, depth in zip(WIDTHS, depths):
        for index in range(depth):
            stride = 2 if index == depth - 1 and narrow < WIDTHS[-1] else 1  # 2 halves the image.
            blocks.append(Preactivated(channels, narrow, stride, is_first=index == 0))
            channels = EXPANSION * narrow
    model = _network(stem, blocks, {"after": _norm_relu(channels)}, classes)
    for layer in model.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return model


resnet50v2 = partial(_resnet_v2, (3, 4, 6, 3))
"""25.6 M parameters with 1000 classes."""
resnet152v2 = partial(_resnet_v2, (3, 8, 36, 3))
"""60.2 M parameters with 1000 classes."""


def _network(
    stem: nn.Module, blocks: Sequence[nn.Module], after: dict[str, nn.Module], classes: int
) -> Parts:  # ``after`` are the layers between the blocks and the mean.
    mean = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    last = {**after, "mean": mean, "head": nn.Linear(EXPANSION * WIDTHS[-1], classes)}
    return Parts({"stem": stem}, {f"block{n}": block for n, block in enumerate(blocks)}, last)


def _conv_norm(channels: int, out: int, kernel: int, stride: int = 1) -> nn.Sequential:
    """Return a convolution with padding, and batch normalization."""
    convolution = nn.Conv2d(channels, out, kernel, stride, padding=kernel // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(out))


def _norm_relu(channels: int) -> nn.Sequential:
    """Return batch normalization as in Keras, and ReLU. Keras's momentum is 1 − PyTorch's."""
    norm = nn.BatchNorm2d(channels, eps=1.001e-5, momentum=0.01)
    return nn.Sequential(norm, nn.ReLU(inplace=True))
