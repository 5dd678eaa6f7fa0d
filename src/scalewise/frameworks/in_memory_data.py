"""Data sets that fit into memory: images are uint8 (count × height × width × channels).

``ImageTransform`` says how each framework converts a batch to the numbers that the model sees.
"""

from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from scalewise.frameworks.data import Labelled
from scalewise.frameworks.data_source import Source

HELD_OUT = 5
"""Training samples per validation sample, roughly, where a data set has no validation split."""
BYTE_SCALE = 1 / 255
IMAGENET_MEAN_STD = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and standard deviation of ImageNet's channels, commonly used for any photos."""
CIFAR_MEAN_STD = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
"""Mean and standard deviation of CIFAR-10's channels, used for CIFAR-100 too."""


@dataclass(frozen=True, slots=True)
class ImageTransform:
    """The conversion of stored images to the numbers that a model sees."""

    scale: float | None = None
    """Factor for each byte; None for a data set of tokens, which are not converted."""
    mean_std: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    """Mean and standard deviation of each channel, to normalize with after scaling."""
    edge: int | None = None
    """Pixels per side that images are resized to; None if they are stored in the model's size."""


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
    """Read a data set that ``in_memory_source`` accepted."""
    assert not isinstance(source.shape, int)
    return READERS[source.kind](source, source.shape)


def _read_digits(source: Source, shape: tuple[int, int, int]) -> Arrays:
    """Return 1,797 handwritten digits of 8x8 pixels (UCI) from scikit-learn's file.

    Importing sklearn instead would take a second or more, on every rank.
    """
    rows = None
    package = find_spec("sklearn")
    for folder in (package.submodule_search_locations if package else None) or ():
        with suppress(OSError):
            file = Path(folder, "datasets", "data", "digits.csv.gz")
            rows = np.loadtxt(file, delimiter=",", dtype=np.uint8)
    if rows is None:  # Some versions of scikit-learn keep the file elsewhere.
        from sklearn.datasets import load_digits

        rows = np.column_stack(load_digits(return_X_y=True)).astype(np.uint8)
    images, labels = rows[:, :64].reshape(-1, 8, 8, 1), rows[:, 64].astype(np.int64)
    held_out = np.arange(len(labels)) % HELD_OUT == HELD_OUT - 1
    train, validation = (Labelled(images[part], labels[part]) for part in (~held_out, held_out))
    transform = ImageTransform(1 / 16, edge=shape[1])  # Pixels are 0 to 16.
    return Arrays(train, validation, 10, shape, transform)


def _make_synthetic(source: Source, shape: tuple[int, int, int]) -> Arrays:
    """Return noisy copies of ten random patterns, one per class, so that a model can learn."""
    channels, *size = shape
    rng = np.random.default_rng(20)  # Any fixed seed: all ranks must draw the same.
    patterns = rng.integers(0, 128, (10, *size, channels), dtype=np.uint8)

    def make_split(count: int) -> Labelled:
        labels = rng.integers(0, 10, count)
        noise = rng.integers(0, 128, (count, *size, channels), dtype=np.uint8)
        return Labelled(patterns[labels] + noise, labels)  # At most 254: no overflow of uint8.

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
    has_right_size = all(split.images.shape[1:3] == shape[1:] for split in (train, validation))
    transform = ImageTransform(BYTE_SCALE, edge=None if has_right_size else shape[1])
    return Arrays(train, validation, classes, shape, transform)


def _read_cifar(source: Source, shape: tuple[int, int, int]) -> Arrays:
    from scalewise.frameworks.data import cifar

    images = cifar.read(source.path)
    transform = ImageTransform(BYTE_SCALE, CIFAR_MEAN_STD, shape[1])
    return Arrays(images.train, images.validation, len(images.classes), shape, transform)


READERS = {
    "digits": _read_digits, "synthetic": _make_synthetic, "idx": _read_idx, "cifar": _read_cifar,
}  # fmt: skip
"""The reader of each kind of data; ``in_memory_source`` refuses other kinds."""
