"""What there is to train and to validate on, and what makes of it what a model sees."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from scalewise.errors import SpecError
from scalewise.frameworks.torch.samples import Batch, Flip, Held, Pictures, Rows, Samples, Windows
from scalewise.frameworks.torch.source import Shape, Source
from scalewise.spec import RunSpec

HELD_OUT = 5
"""Every fifth sample validates, in data sets that come without a split."""
BYTE = 1 / 255
PHOTOS = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and spread of the colours of ImageNet's photos, as everyone takes them for all photos."""
CIFAR = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
"""Those of CIFAR-10."""

Share = Callable[[Callable[[], bytes]], bytes]
"""Has one rank find something out, and hands it to all."""


@dataclass(frozen=True, slots=True)
class Finish:
    """What makes of bytes, as they are stored and travel, the numbers that a model sees."""

    scale: float | None = None
    """What a byte is multiplied by; nothing leaves tokens what they are."""
    colours: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    """Mean and spread of each channel, which become 0 and 1."""
    edge: int | None = None
    """Pixels of a side that images are brought to."""

    def on(self, device: torch.device) -> Callable[[Tensor], Tensor]:
        """Return what finishes a batch that lies on a device.

        Channels come last and seem to come first from there on: convolutions like that.
        """
        scale = self.scale
        if scale is None:
            return lambda inputs: inputs
        layout = torch.contiguous_format if device.type == "cpu" else torch.preserve_format
        gain: float | Tensor = scale
        shift: Tensor | None = None
        if self.colours:
            mean, spread = torch.tensor(self.colours, device=device)[:, :, None, None]
            gain, shift = scale / spread, -mean / spread

        def finish(images: Tensor) -> Tensor:
            if images.shape[3] == 1:  # Where channels come last or first, nobody could tell.
                seen = images.reshape(len(images), 1, *images.shape[1:3])
            else:
                seen = images.permute(0, 3, 1, 2)
            seen = seen.to(torch.float32, memory_format=layout)
            if self.edge and seen.shape[2:] != (self.edge, self.edge):
                shrinks = self.edge < max(seen.shape[2:])
                size = (self.edge, self.edge)
                seen = interpolate(seen, size, mode="bilinear", antialias=shrinks)
            seen = seen.mul_(gain)
            return seen if shift is None else seen.add_(shift)

        return finish


@dataclass(frozen=True, slots=True)
class Data:
    """What to train on and what to validate on."""

    train: Samples
    validation: Samples
    classes: int
    shape: Shape
    """Channels, height and width that a model sees, or the length of a sequence of tokens."""
    finish: Finish
    on_device: bool = False
    """Whether samples lie on the device already."""

    def blank(self, count: int) -> Batch:
        """Return a batch that teaches nothing, as it would travel."""
        if isinstance(self.shape, int):
            nothing = torch.zeros(count, self.shape, dtype=torch.long)
            return nothing, nothing
        channels, height, width = self.shape
        images = torch.zeros(count, height, width, channels, dtype=torch.uint8)
        return images, torch.zeros(count, dtype=torch.long)

    def on(self, device: torch.device) -> "Data":
        """Return the same, held by a device."""
        assert isinstance(self.train, Held)
        assert isinstance(self.validation, Held)
        train, held = self.train.to(device), self.validation.to(device)
        return replace(self, train=train, validation=held, on_device=True)


def alone(make: Callable[[], bytes]) -> bytes:
    """Find out what no other rank needs to be told."""
    return make()


def load(source: Source, spec: RunSpec | None = None, share: Share = alone) -> Data:
    """Read a data set, or learn where its files are; ``share`` has one rank look for all."""
    if source.kind == "digits":
        return _digits(source)
    if source.kind == "synthetic":
        return _synthetic(source)
    if source.kind == "made-up tokens":
        return _language(source)
    if source.kind == "tokens":
        return _stream(source)
    flip = Flip(spec.seed + spec.repeat) if spec and spec.augment != "none" else None
    if source.kind == "images":
        return _pictures(source, spec, share)
    if spec and spec.augment == "crop":
        raise SpecError(
            f'augment = "crop" is for folders of images, and {source.path} is {source.kind}',
            hint='write augment = "flip"',
        )
    if source.kind == "packed":
        return _packed(source, flip)
    return _cifar(source, flip) if source.kind == "cifar" else _idx(source, flip)


def _held(pixels: Tensor, labels: Tensor, classes: int, source: Source, finish: Finish) -> Data:
    """Hold every fifth image back for validation."""
    held = torch.arange(len(labels)) % HELD_OUT == HELD_OUT - 1
    return Data(
        Held(pixels[~held], labels[~held]),
        Held(pixels[held], labels[held]),
        classes,
        source.shape,
        finish,
    )


def _digits(source: Source) -> Data:
    """1,797 real handwritten digits of 8x8 pixels (UCI, shipped by scikit-learn)."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = torch.from_numpy(digits.images).to(torch.uint8).unsqueeze(-1)
    finish = Finish(1 / 16, edge=_edge(source))
    return _held(images, torch.from_numpy(digits.target).long(), 10, source, finish)


def _edge(source: Source) -> int:
    assert not isinstance(source.shape, int)
    return source.shape[1]


def _synthetic(source: Source) -> Data:
    """Noisy copies of ten random patterns: the same on every rank, and learnable."""
    assert not isinstance(source.shape, int)
    channels, *edges = source.shape
    chance = torch.Generator().manual_seed(20)

    def some_bytes(count: int) -> Tensor:
        shape = (count, *edges, channels)
        return torch.randint(0, 128, shape, generator=chance, dtype=torch.uint8)

    patterns = some_bytes(10)

    def some(count: int) -> Held:
        labels = torch.randint(0, 10, (count,), generator=chance)
        return Held(patterns[labels] + some_bytes(count), labels)

    train, held = some(source.count), some(max(1, source.count // HELD_OUT))
    return Data(train, held, 10, source.shape, Finish(BYTE))


def _idx(source: Source, flip: Flip | None) -> Data:
    from scalewise.frameworks.data import idx

    def some(which: str, flip: Flip | None) -> Held:
        images, labels = (torch.from_numpy(each.copy()) for each in idx.pair(source.path, which))
        return Held(images.unsqueeze(-1), labels.long(), flip)

    train, held = some("train", flip), some("validation", None)
    classes = int(max(train.labels.max(), held.labels.max())) + 1
    return Data(train, held, classes, source.shape, Finish(BYTE, edge=_edge(source)))


def _cifar(source: Source, flip: Flip | None) -> Data:
    from scalewise.frameworks.data import cifar

    found = cifar.read(source.path)

    def some(pixels: Any, labels: Any, flip: Flip | None) -> Held:
        return Held(torch.from_numpy(pixels), torch.from_numpy(labels).long(), flip)

    train = some(found.train, found.train_labels, flip)
    held = some(found.validation, found.validation_labels, None)
    finish = Finish(BYTE, CIFAR, _edge(source))
    return Data(train, held, len(found.classes), source.shape, finish)


def _packed(source: Source, flip: Flip | None) -> Data:
    from scalewise.frameworks.data.packed import Packed

    packed = Packed.of(source.path)
    train, held = Rows(packed.train, flip), Rows(packed.validation)
    return Data(train, held, len(packed.classes), source.shape, Finish(BYTE, PHOTOS))


def _pictures(source: Source, spec: RunSpec | None, share: Share) -> Data:
    """List a folder once, for all ranks: a shared file system answers slowly."""
    from scalewise.frameworks.data.folder import Listing
    from scalewise.frameworks.data.pixels import Crop

    listing = Listing.from_bytes(share(lambda: Listing.of(source.path).to_bytes()))
    crop = None
    if spec and spec.augment == "crop":
        crop = Crop(spec.seed + spec.repeat)
    elif spec and spec.augment == "flip":
        crop = Crop(spec.seed + spec.repeat, scale=(1.0, 1.0), ratio=(1.0, 1.0))
    refuse = spec is not None and spec.broken == "refuse"
    edge = _edge(source)
    train = Pictures(listing, listing.train, edge, crop=crop, refuse=refuse)
    held = Pictures(listing, listing.validation, edge, crop=None, refuse=refuse)
    return Data(train, held, len(listing.classes), source.shape, Finish(BYTE, PHOTOS))


def _stream(source: Source) -> Data:
    """Sequences of a text's bytes, or of a file of tokens."""
    from scalewise.frameworks.data import tokens

    found = tokens.read(source.path)
    length = source.shape
    assert isinstance(length, int)
    words = found.vocabulary or max(
        tokens.vocabulary(each) for each in (found.train, found.validation) if each is not None
    )
    train = Windows(found.train, length)
    if found.validation is None:
        train, validation = train.apart(HELD_OUT + 1)
    else:
        validation = Windows(found.validation, length)
    for each in (train, validation):
        if not len(each):
            raise SpecError(
                f"{source.path} has {len(found.train)} tokens, too few for sequences of {length}",
                hint="a smaller length, or more text",
            )
    return Data(train, validation, words, length, Finish())


def _language(source: Source) -> Data:
    """A made-up language in which one word mostly decides the next."""
    length, words = source.shape, source.vocabulary
    assert isinstance(length, int)
    count = source.count + max(1, source.count // HELD_OUT)
    stream = _speech(count * length + 1, words)
    sequences = stream[: count * length].reshape(count, length)
    following = stream[1 : count * length + 1].reshape(count, length)
    held = torch.arange(count) % (HELD_OUT + 1) == HELD_OUT
    if not held.any():
        held[-1] = True
    return Data(
        Held(sequences[~held], following[~held]),
        Held(sequences[held], following[held]),
        words,
        length,
        Finish(),
    )


def _speech(length: int, vocabulary: int) -> Tensor:
    """Return words of which four in five follow from the one before."""
    chance = torch.Generator().manual_seed(20)
    follows = torch.randperm(vocabulary, generator=chance).tolist()
    free = torch.randint(0, vocabulary, (length,), generator=chance).tolist()
    bound = (torch.rand(length, generator=chance) < 0.8).tolist()
    words = [0]
    for n in range(1, length):
        words.append(follows[words[-1]] if bound[n] else free[n])
    return torch.tensor(words)
