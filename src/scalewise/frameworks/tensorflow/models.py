"""The models: the small network of the MNIST examples, and residual ones as Keras has them.

Keras is imported when one is made: their options can be read without it.
"""

from typing import Any

Shape = tuple[int, int, int]
"""Channels, height and width of an image."""


def mnist_cnn(shape: Shape, classes: int, *, dropout: float = 0.25) -> Any:
    """Two convolutions, a pool and two dense layers; 1.2 M parameters on 28x28.

    Weights begin as PyTorch's do, biases with nothing, as Keras's do.
    """
    from keras import Input, Sequential, initializers, layers

    channels, height, width = shape

    def drawn() -> Any:
        return initializers.VarianceScaling(1 / 3, "fan_in", "uniform")

    return Sequential(
        [
            Input((height, width, channels)),
            layers.Conv2D(32, 3, activation="relu", kernel_initializer=drawn()),
            layers.Conv2D(64, 3, activation="relu", kernel_initializer=drawn()),
            layers.MaxPooling2D(2),
            layers.Dropout(dropout),
            layers.Flatten(),
            layers.Dense(128, activation="relu", kernel_initializer=drawn()),
            layers.Dropout(min(1.0, 2 * dropout)),
            layers.Dense(classes, kernel_initializer=drawn()),
        ]
    )


def resnet50v2(shape: Shape, classes: int) -> Any:
    """25.6 M parameters with 1000 classes."""
    from keras.applications import ResNet50V2

    return _published(ResNet50V2, shape, classes)


def resnet152v2(shape: Shape, classes: int) -> Any:
    """60.4 M parameters with 1000 classes."""
    from keras.applications import ResNet152V2

    return _published(ResNet152V2, shape, classes)


def _published(model: Any, shape: Shape, classes: int) -> Any:
    channels, height, width = shape
    return model(
        weights=None,
        input_shape=(height, width, channels),
        classes=classes,
        classifier_activation=None,
    )
