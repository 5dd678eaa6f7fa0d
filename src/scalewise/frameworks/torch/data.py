"""Images in memory, and which rank sees which of them when."""

import gzip
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from scalewise.errors import SpecError
from scalewise.frameworks import too_few
from scalewise.frameworks.torch.source import LENGTH, Source
from scalewise.spec import Remainder, RunSpec

HELD_OUT = 5
"""Every fifth sample validates, in data sets that come without a split."""


class Samples(Dataset[tuple[Tensor, Tensor]]):
    """Grey images and their labels, or tokens and the next ones; indexed by whole batches."""

    def __init__(self, inputs: Tensor, labels: Tensor, scale: float | None = None) -> None:
        self.inputs, self.labels, self.scale = inputs, labels, scale

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: Tensor) -> tuple[Tensor, Tensor]:
        inputs = self.inputs[index]
        if self.scale is not None:
            inputs = inputs.to(torch.float32).mul_(self.scale)
        return inputs, self.labels[index]


@dataclass(frozen=True, slots=True)
class Data:
    """What to train on and what to validate on."""

    train: Samples
    validation: Samples
    classes: int

    @property
    def shape(self) -> tuple[int, int, int] | int:
        """Channels, height and width of one image; the length of a sequence of tokens."""
        _, *shape = self.train.inputs.shape
        return shape[0] if len(shape) == 1 else (shape[0], shape[1], shape[2])


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
        Samples(images[~held], labels[~held], 1 / 16),
        Samples(images[held], labels[held], 1 / 16),
        10,
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
        return Samples(patterns[labels] + noise, labels, 1 / 255)

    return Data(some(samples), some(max(1, samples // HELD_OUT)), 10)


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
        return Samples(pixels, labels, 1 / 255)

    train, validation = images("train"), images("validation")
    return Data(train, validation, int(max(train.labels.max(), validation.labels.max())) + 1)


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


class Shards(Sampler[Tensor]):
    """Which samples one replica sees, micro-step by micro-step.

    An epoch is one permutation, the same on every replica, cut into global
    batches; each replica takes every n-th sample of a global batch. So the same
    global batch is the same set of samples on any number of replicas, and no
    sample comes twice. The order is another in every epoch (``set_epoch``).
    """

    def __init__(self, size: int, spec: RunSpec, replica: int) -> None:
        if size < spec.replicas:
            raise too_few(size, spec.replicas)
        self._size, self._replica, self._replicas = size, replica, spec.replicas
        assert spec.batch is not None
        self._batch, self._micro = spec.batch, spec.accumulate
        self._whole = spec.global_batch
        self._seed = spec.seed + spec.repeat
        self._epoch, self._place = 0, 0
        self._full, left = divmod(size, self._whole)
        rule: Remainder = spec.remainder
        if rule == "drop" and not self._full:
            rule = "short"  # The only global batch is kept, ragged as it is.
        self._full += 1 if left and rule == "pad" else 0
        self._left = left if rule == "short" else 0

    def __len__(self) -> int:
        return (self.steps - self._place) * self._micro

    @property
    def steps(self) -> int:
        """Optimizer steps per epoch."""
        return self._full + bool(self._left)

    @property
    def seen(self) -> int:
        """Samples this replica trains on per epoch."""
        return self._full * self._batch * self._micro + sum(self.counts(self._full))

    def set_epoch(self, epoch: int, place: int = 0) -> None:
        """Choose the order of this pass, and how many of its steps are done already."""
        self._epoch, self._place = epoch, place

    def whole(self, step: int) -> bool:
        """Say whether every replica has full batches in a step."""
        return step < self._full

    def counts(self, step: int) -> list[int]:
        """Return how many samples this replica has in each micro-step of a step."""
        if step < self._full:
            return [self._batch] * self._micro
        mine = len(range(self._replica, self._left, self._replicas))
        return [min(self._batch, max(0, mine - n * self._batch)) for n in range(self._micro)]

    def weights(self, step: int) -> list[float]:
        """Return the factor of each micro-step's mean loss.

        With it the gradient, averaged over replicas, is the mean over the
        samples of the global batch, also when it is ragged.
        """
        together = self._whole if step < self._full else self._left
        return [count * self._replicas / together for count in self.counts(step)]

    def __iter__(self) -> Iterator[Tensor]:
        return islice(self._micro_steps(), self._place * self._micro, None)

    def _micro_steps(self) -> Iterator[Tensor]:
        chance = torch.Generator().manual_seed((self._seed << 20) + self._epoch)
        order = torch.randperm(self._size, generator=chance)
        missing = self._full * self._whole - self._size
        if missing > 0:  # remainder = "pad"
            order = torch.cat([order, order.repeat(-(-missing // self._size))[:missing]])
        full = order[: self._full * self._whole].reshape(-1, self._replicas)[:, self._replica]
        yield from full.reshape(-1, self._batch)
        if self._left:
            mine = order[self._full * self._whole :][self._replica :: self._replicas]
            for n, count in enumerate(self.counts(self._full)):
                # A replica without samples takes one along, with weight 0.
                yield mine[n * self._batch :][:count] if count else order[:1]
