"""What there is to train and to validate on, and what makes of it what a model sees."""

import gzip
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset

from scalewise.errors import SpecError
from scalewise.frameworks.torch.source import LENGTH, Source

HELD_OUT = 5
"""Every fifth sample validates, in data sets that come without a split."""


class Samples(Dataset[tuple[Tensor, Tensor]]):
    """Images in memory and their labels, or tokens and the next ones; indexed by whole batches."""

    def __init__(self, inputs: Tensor, labels: Tensor) -> None:
        self.inputs, self.labels = inputs, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: Tensor) -> tuple[Tensor, Tensor]:
        return self.inputs[index], self.labels[index]


@dataclass(frozen=True, slots=True)
class Finish:
    """What makes of bytes, as they are stored and travel, the numbers that a model sees."""

    scale: float | None = None
    """What a byte is multiplied by; nothing leaves tokens what they are."""

    def __call__(self, inputs: Tensor) -> Tensor:
        """Return a batch as the model sees it, on the device that it is on."""
        return inputs if self.scale is None else inputs.to(torch.float32).mul_(self.scale)


@dataclass(frozen=True, slots=True)
class Data:
    """What to train on and what to validate on."""

    train: Samples
    validation: Samples
    classes: int
    finish: Finish = Finish()

    @property
    def shape(self) -> tuple[int, int, int] | int:
        """Channels, height and width of one image; the length of a sequence of tokens."""
        _, *shape = self.train.inputs.shape
        return shape[0] if len(shape) == 1 else (shape[0], shape[1], shape[2])

    def blank(self, count: int) -> tuple[Tensor, Tensor]:
        """Return a batch that teaches nothing, as it would travel."""
        inputs, labels = self.train[torch.zeros(count, dtype=torch.long)]
        return inputs.zero_(), labels.zero_()


def load(source: Source) -> Data:
    """Read a data set into memory."""
    if source.kind == "digits":
        return _digits()
    if source.kind == "synthetic":
        return _synthetic(*source.shape)
    if source.kind in ("tokens", "text"):
        return _tokens(source)
    return _idx(source)


def _digits() -> Data:
    """1,797 real handwritten digits of 8x8 pixels (UCI, shipped by scikit-learn)."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = torch.from_numpy(digits.images).to(torch.uint8).unsqueeze(1)
    labels = torch.from_numpy(digits.target).long()
    held = torch.arange(len(labels)) % HELD_OUT == HELD_OUT - 1
    return Data(
        Samples(images[~held], labels[~held]),
        Samples(images[held], labels[held]),
        10,
        Finish(1 / 16),
    )


def _synthetic(samples: int, height: int, width: int) -> Data:
    """Noisy copies of ten random patterns: the same on every rank, and learnable."""
    chance = torch.Generator().manual_seed(20)
    patterns = torch.randint(0, 128, (10, 1, height, width), generator=chance, dtype=torch.uint8)

    def some(count: int) -> Samples:
        labels = torch.randint(0, 10, (count,), generator=chance)
        noise = torch.randint(
            0, 128, (count, 1, height, width), generator=chance, dtype=torch.uint8
        )
        return Samples(patterns[labels] + noise, labels)

    return Data(some(samples), some(max(1, samples // HELD_OUT)), 10, Finish(1 / 255))


def _tokens(source: Source) -> Data:
    """The bytes of a text, or a made-up language of as many words as there are digits and letters.

    There one word mostly decides the next.
    """
    if source.kind == "text":
        content = source.folder.read_bytes()
        length, vocabulary = LENGTH, 256
        stream = torch.frombuffer(bytearray(content), dtype=torch.uint8).long()
        count = (len(stream) - 1) // length
        if count < 2:
            raise SpecError(
                f"{source.folder} has {len(content)} bytes, too few for sequences of {length}"
            )
    else:
        count, length, _ = source.shape
        count += max(1, count // HELD_OUT)
        vocabulary = 36
        stream = _language(count * length + 1, vocabulary)
    sequences = stream[: count * length].reshape(count, length)
    following = stream[1 : count * length + 1].reshape(count, length)
    held = torch.arange(count) % (HELD_OUT + 1) == HELD_OUT
    if not held.any():
        held[-1] = True
    return Data(
        Samples(sequences[~held], following[~held]),
        Samples(sequences[held], following[held]),
        vocabulary,
    )


def _language(length: int, vocabulary: int) -> Tensor:
    """Return words of which four in five follow from the one before."""
    chance = torch.Generator().manual_seed(20)
    follows = torch.randperm(vocabulary, generator=chance).tolist()
    free = torch.randint(0, vocabulary, (length,), generator=chance).tolist()
    bound = (torch.rand(length, generator=chance) < 0.8).tolist()
    words = [0]
    for n in range(1, length):
        words.append(follows[words[-1]] if bound[n] else free[n])
    return torch.tensor(words)


def _idx(source: Source) -> Data:
    """MNIST's own format: a magic number, the sizes, then bytes."""

    def images(which: str) -> Samples:
        pixels = _read_idx(source.idx(f"{which} images"), 3).unsqueeze(1)
        labels = _read_idx(source.idx(f"{which} labels"), 1).long()
        if len(pixels) != len(labels) or not len(labels):
            raise SpecError(
                f"{source.folder} has {len(pixels)} {which} images and {len(labels)} labels"
            )
        return Samples(pixels, labels)

    train, validation = images("train"), images("validation")
    classes = int(max(train.labels.max(), validation.labels.max())) + 1
    return Data(train, validation, classes, Finish(1 / 255))


def _read_idx(path: Path, dimensions: int) -> Tensor:
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
        magic, *sizes = struct.unpack_from(f">{1 + dimensions}i", content)
        if magic != 0x0800 + dimensions:
            raise ValueError(f"magic number {magic:#x}")
        values = torch.frombuffer(bytearray(content), dtype=torch.uint8, offset=4 + 4 * dimensions)
        return values.reshape(sizes)
    except (OSError, EOFError, zlib.error, ValueError, RuntimeError, struct.error) as bad:
        raise SpecError(
            f"{path} is not a whole MNIST idx file: {bad}", hint="download it again"
        ) from bad
