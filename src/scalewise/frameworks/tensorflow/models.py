"""The small network of the MNIST examples, and Keras's ResNets. Building them imports Keras."""

from typing import Any

Shape = tuple[int, int, int]
"""Channels, height and width of an image."""


def mnist_cnn(shape: Shape, classes: int, *, dropout: float = 0.25) -> Any:
    """Return two convolutions, a pool and two dense layers; 1.2 M parameters for 28x28 pixels.

    Weights are initialized as in PyTorch, biases with 0 as in Keras.
    """
    from keras import Input, Sequential, initializers, layers

    channels, height, width = shape

    def pytorch_init() -> Any:
        return initializers.VarianceScaling(1 / 3, "fan_in", "uniform")  # ± 1/√fan_in

    return Sequential(
        [
            Input((height, width, channels)),
            layers.Conv2D(32, 3, activation="relu", kernel_initializer=pytorch_init()),
            layers.Conv2D(64, 3, activation="relu", kernel_initializer=pytorch_init()),
            layers.MaxPooling2D(2),
            layers.Dropout(dropout),
            layers.Flatten(),
            layers.Dense(128, activation="relu", kernel_initializer=pytorch_init()),
            layers.Dropout(min(1.0, 2 * dropout)),  # The MNIST examples have 0.25 and 0.5.
            layers.Dense(classes, kernel_initializer=pytorch_init()),
        ]
    )


def resnet50v2(shape: Shape, classes: int) -> Any:
    """Return Keras's ResNet50V2, with 25.6 M parameters for 1000 classes."""
    from keras.applications import ResNet50V2

    return _build_from_keras(ResNet50V2, shape, classes)


def resnet152v2(shape: Shape, classes: int) -> Any:
    """Return Keras's ResNet152V2, with 60.4 M parameters for 1000 classes."""
    from keras.applications import ResNet152V2

    return _build_from_keras(ResNet152V2, shape, classes)


def _build_from_keras(model: Any, shape: Shape, classes: int) -> Any:
    channels, height, width = shape
    return model(
        weights=None,
        input_shape=(height, width, channels),
        classes=classes,
        classifier_activation=None,
    )
