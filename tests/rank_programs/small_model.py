"""A model as a user might have it: no part of it is ours, and one weight has two names."""

from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.dense = nn.Sequential(nn.Linear(width, width), nn.Tanh())

    def forward(self, x):
        return x + self.dense(x)


class Residual(nn.Module):
    def __init__(self, pixels, classes, width, depth):
        super().__init__()
        self.flatten = nn.Flatten()
        self.first = nn.Linear(pixels, width)
        self.layers = nn.ModuleList(Block(width) for _ in range(depth))
        self.middle = nn.Linear(width, width)
        self.again = nn.Linear(width, width)
        self.again.weight = self.middle.weight
        self.last = nn.Linear(width, classes)

    def forward(self, x):
        x = self.middle(self.first(self.flatten(x)))
        for each in self.layers:
            x = each(x)
        return {"logits": self.last(self.again(x)), "hidden": x}


def residual(shape, classes, width=16, *, depth=3):
    channels, height, across = shape
    return Residual(channels * height * across, classes, width, depth)


def normalized(shape, classes, width=12, *, dropout=0.1):
    """Return a model with running statistics: of a batch normalization, per rank."""
    channels, height, across = shape
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(channels * height * across, width),
        nn.BatchNorm1d(width),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(width, classes),
    )
