"""The small convolutional network of the MNIST examples."""

from torch import nn

from scalewise.frameworks.torch.models.parts import image_shape


def mnist_cnn(shape: tuple[int, int, int], classes: int, *, dropout: float = 0.25) -> nn.Module:
    """Return two convolutions, a pool and two dense layers; 1.2 M parameters for 28x28 pixels."""
    channels, height, width = image_shape(shape)
    if min(height, width) < 6:
        raise ValueError("nothing is left of images below 6 x 6 after two convolutions and a pool")
    # Each 3x3 convolution without padding removes 2 rows and columns; the pool halves the sides.
    flat = 64 * ((height - 4) // 2) * ((width - 4) // 2)
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(dropout),
        nn.Flatten(),
        nn.Linear(flat, 128),
        nn.ReLU(),
        nn.Dropout(min(1.0, 2 * dropout)),
        nn.Linear(128, classes),
    )
