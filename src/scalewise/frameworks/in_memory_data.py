"""Data sets that fit into memory, as arrays that every engine takes; no engine.

Images stay bytes (count × height × width × channels), as they lie on disks. What a model sees of
them is a ``Look``, which each engine puts on in its own way, once per batch.
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
"""Every fifth sample validates, in data sets that come without a split."""
BYTE = 1 / 255
PHOTOS = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and spread of the colours of ImageNet's photos, as everyone takes them for all photos."""
CIFAR = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
"""Those of CIFAR-10."""

Numbers = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Look:
    """What makes of bytes, as they are stored and travel, the numbers that a model sees."""

    scale: float | None = None
    """What a byte is multiplied by; nothing leaves tokens what they are."""
    colours: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    """Mean and spread of each channel, which become 0 and 1."""
    edge: int | None = None
    """Pixels of a side that images are brought to."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """Images and what they show."""

    images: Pixels
    labels: Numbers

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, slots=True)
class Arrays:
    """A data set in memory."""

    train: Labelled
    validation: Labelled
    classes: int
    shape: tuple[int, int, int]
    """Channels, height and width that a model sees."""
    look: Look


def read(source: Source) -> Arrays:
    """Read a data set that fits into memory; refuse one that only PyTorch reads."""
    if source.kind == "digits":
        return _digits(source)
    if source.kind == "synthetic":
        return _synthetic(source)
    if source.kind == "idx":
        return _idx(source)
    if source.kind == "cifar":
        return _cifar(source)
    raise SpecError(
        f"{source.path if source.path.name else source.kind} is read by PyTorch alone",
        hint='give MNIST\'s idx files, CIFAR\'s batches, "digits" or "synthetic:10000"',
    )


def _shape(source: Source) -> tuple[int, int, int]:
    assert not isinstance(source.shape, int)
    return source.shape


def _digits(source: Source) -> Arrays:
    """1,797 real handwritten digits of 8x8 pixels (UCI, shipped by scikit-learn)."""
    rows = _rows_of_digits()
    images, labels = rows[:, :64].reshape(-1, 8, 8, 1), rows[:, 64].astype(np.int64)
    held = np.arange(len(labels)) % HELD_OUT == HELD_OUT - 1
    shape = _shape(source)
    return Arrays(
        Labelled(images[~held], labels[~held]), Labelled(images[held], labels[held]),
        10, shape, Look(1 / 16, edge=shape[1]),
    )  # fmt: skip


def _rows_of_digits() -> Pixels:
    """Return 64 pixels and the label of each digit.

    Read out of scikit-learn's file: to import it takes a second and more, on every rank.
    """
    package = find_spec("sklearn")
    places = package.submodule_search_locations if package else None
    for place in places or ():
        with suppress(OSError):
            file = Path(place, "datasets", "data", "digits.csv.gz")
            return np.loadtxt(file, delimiter=",", dtype=np.uint8)
    from sklearn.datasets import load_digits  # Where another version keeps it elsewhere.

    images, labels = load_digits(return_X_y=True)
    return np.column_stack([images, labels]).astype(np.uint8)


def _synthetic(source: Source) -> Arrays:
    """Noisy copies of ten random patterns: the same on every rank, and learnable."""
    shape = channels, *edges = _shape(source)
    chance = np.random.default_rng(20)

    def some_bytes(count: int) -> Pixels:
        return chance.integers(0, 128, (count, *edges, channels), dtype=np.uint8)

    patterns = some_bytes(10)

    def some(count: int) -> Labelled:
        labels = chance.integers(0, 10, count)
        return Labelled(patterns[labels] + some_bytes(count), labels)

    train, held = some(source.count), some(max(1, source.count // HELD_OUT))
    return Arrays(train, held, 10, shape, Look(BYTE))


def _idx(source: Source) -> Arrays:
    from scalewise.frameworks.data import idx

    def some(which: str) -> Labelled:
        images, labels = idx.pair(source.path, which)
        return Labelled(images[..., None], labels.astype(np.int64))

    train, held = some("train"), some("validation")
    classes = int(max(train.labels.max(), held.labels.max())) + 1
    shape = _shape(source)
    fits = all(each.images.shape[1:3] == shape[1:] for each in (train, held))
    return Arrays(train, held, classes, shape, Look(BYTE, edge=None if fits else shape[1]))


def _cifar(source: Source) -> Arrays:
    from scalewise.frameworks.data import cifar

    found = cifar.read(source.path)
    shape = _shape(source)
    return Arrays(
        Labelled(found.train, found.train_labels.astype(np.int64)),
        Labelled(found.validation, found.validation_labels.astype(np.int64)),
        len(found.classes), shape, Look(BYTE, CIFAR, shape[1]),
    )  # fmt: skip
