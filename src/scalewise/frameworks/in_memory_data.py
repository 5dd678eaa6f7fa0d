"""Data sets that fit into memory, as numpy arrays for every framework.

Images stay uint8 (count × height × width × channels). ``ImageTransform`` says how each framework
converts them to what the model sees, once per batch.
"""

from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from scalewise.errors import SpecError
from scalewise.frameworks.data import Pixels
from scalewise.frameworks.data_source import Source

HELD_OUT = 5
"""Every fifth sample validates in data sets without a validation split."""
BYTE_SCALE = 1 / 255
IMAGENET_MEAN_STD = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and standard deviation of ImageNet's channels, customary for all photos."""
CIFAR_MEAN_STD = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
"""Those of CIFAR-10."""

LabelArray = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class ImageTransform:
    """The conversion of stored bytes to the numbers that a model sees."""

    scale: float | None = None
    """Factor for each byte; None for tokens, which are not converted."""
    mean_std: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    """Mean and standard deviation of each channel, to normalize with after scaling."""
    edge: int | None = None
    """Pixels per side that images are resized to; None if they have the right size."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """Images and their labels."""

    images: Pixels
    labels: LabelArray

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, slots=True)
class Arrays:
    """A data set in memory."""

    train: Labelled
    validation: Labelled
    classes: int
    shape: tuple[int, int, int]
    """Channels, height and width as the model sees them."""
    transform: ImageTransform


def read(source: Source) -> Arrays:
    """Read a data set that fits into memory; refuse one that only PyTorch reads."""
    readers = {
        "digits": _read_digits,
        "synthetic": _make_synthetic,
        "idx": _read_idx,
        "cifar": _read_cifar,
    }
    if source.kind not in readers:
        raise SpecError(
            f"{source.path if source.path.name else source.kind} is read by PyTorch alone",
            hint='give MNIST\'s idx files, CIFAR\'s batches, "digits" or "synthetic:10000"',
        )
    assert not isinstance(source.shape, int)
    return readers[source.kind](source, source.shape)


def _read_digits(source: Source, shape: tuple[int, int, int]) -> Arrays:
    """Return 1,797 handwritten digits of 8x8 pixels (UCI, shipped by scikit-learn)."""
    rows = _read_digit_rows()
    images, labels = rows[:, :64].reshape(-1, 8, 8, 1), rows[:, 64].astype(np.int64)
    validates = np.arange(len(labels)) % HELD_OUT == HELD_OUT - 1
    return Arrays(
        Labelled(images[~validates], labels[~validates]),
        Labelled(images[validates], labels[validates]),
        10, shape, ImageTransform(1 / 16, edge=shape[1]),
    )  # fmt: skip


def _read_digit_rows() -> Pixels:
    """Return 64 pixels and the label of each digit.

    Reads scikit-learn's file: importing sklearn takes a second or more, on every rank.
    """
    package = find_spec("sklearn")
    for folder in (package.submodule_search_locations if package else None) or ():
        with suppress(OSError):
            file = Path(folder, "datasets", "data", "digits.csv.gz")
            return np.loadtxt(file, delimiter=",", dtype=np.uint8)
    from sklearn.datasets import load_digits  # For versions that keep the file elsewhere.

    images, labels = load_digits(return_X_y=True)
    return np.column_stack([images, labels]).astype(np.uint8)


def _make_synthetic(source: Source, shape: tuple[int, int, int]) -> Arrays:
    """Return noisy copies of ten random patterns: the same on every rank, and learnable."""
    channels, *edges = shape
    rng = np.random.default_rng(20)

    def random_images(count: int) -> Pixels:
        return rng.integers(0, 128, (count, *edges, channels), dtype=np.uint8)

    patterns = random_images(10)

    def make_split(count: int) -> Labelled:
        labels = rng.integers(0, 10, count)
        return Labelled(patterns[labels] + random_images(count), labels)

    train = make_split(source.count)
    validation = make_split(max(1, source.count // HELD_OUT))
    return Arrays(train, validation, 10, shape, ImageTransform(BYTE_SCALE))


def _read_idx(source: Source, shape: tuple[int, int, int]) -> Arrays:
    from scalewise.frameworks.data import idx

    def read_split(name: str) -> Labelled:
        images, labels = idx.read_split(source.path, name)
        return Labelled(images[..., None], labels.astype(np.int64))

    train, validation = read_split("train"), read_split("validation")
    classes = int(max(train.labels.max(), validation.labels.max())) + 1
    fits = all(split.images.shape[1:3] == shape[1:] for split in (train, validation))
    transform = ImageTransform(BYTE_SCALE, edge=None if fits else shape[1])
    return Arrays(train, validation, classes, shape, transform)


def _read_cifar(source: Source, shape: tuple[int, int, int]) -> Arrays:
    from scalewise.frameworks.data import cifar

    images = cifar.read(source.path)
    return Arrays(
        Labelled(images.train, images.train_labels.astype(np.int64)),
        Labelled(images.validation, images.validation_labels.astype(np.int64)),
        len(images.classes), shape, ImageTransform(BYTE_SCALE, CIFAR_MEAN_STD, shape[1]),
    )  # fmt: skip
