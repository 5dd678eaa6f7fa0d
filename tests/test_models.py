"""The built-in models, by their published sizes."""

from itertools import pairwise

import pytest
import torch

from scalewise.frameworks.torch.models.mlp import mlp
from scalewise.frameworks.torch.models.mnist_cnn import mnist_cnn


def parameters(model):
    return sum(each.numel() for each in model.parameters())


def test_the_mnist_network_has_the_size_of_the_examples():
    assert parameters(mnist_cnn((1, 28, 28), 10)) == 1_199_882


@pytest.mark.parametrize("shape", [(1, 28, 28), (1, 8, 8), (3, 9, 13)])
@pytest.mark.parametrize("model", [mnist_cnn, mlp])
def test_models_take_any_image_size(model, shape):
    options = {"hidden": [32, 16]} if model is mlp else {}
    assert model(shape, 7, **options)(torch.zeros(2, *shape)).shape == (2, 7)


def test_the_dense_network_halves_from_8192_to_64():
    widths = [8192, 4096, 2048, 1024, 512, 256, 128, 64]
    sizes = [784, *widths, 10]
    expected = sum(a * b + b for a, b in pairwise(sizes))
    assert parameters(mlp((1, 28, 28), 10)) == expected
