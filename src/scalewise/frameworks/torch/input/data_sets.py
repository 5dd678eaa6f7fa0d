"""What there is to train and to validate on, and what makes of it what a model sees."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from scalewise.frameworks.data_source import Shape, Source, refuse_crop
from scalewise.frameworks.in_memory_data import (
    BYTE_SCALE,
    HELD_OUT,
    IMAGENET_MEAN_STD,
    ImageTransform,
    Labelled,
    read,
)
from scalewise.frameworks.torch.input.batches import (
    Batch,
    ImageFiles,
    PackedImages,
    RandomFlip,
    Samples,
    TensorSamples,
    TokenWindows,
)
from scalewise.spec import RunSpec

REAL_KINDS = ("digits", "cifar", "idx")
"""Data sets in memory that are not made up: those lie where their name says."""
MAX_ON_DEVICE_BYTES = 2**30
"""Bytes that an accelerator has to spare for a data set. CIFAR-10's images are a sixth of that."""
Broadcast = Callable[[Callable[[], bytes]], bytes]
"""Has one rank find something out, and hands it to all."""


@dataclass(frozen=True, slots=True)
class Preprocessing(ImageTransform):
    """What makes of bytes the numbers that a model sees, done by PyTorch."""

    def on(
        self, device: torch.device, numbers: torch.dtype = torch.float32
    ) -> Callable[[Tensor], Tensor]:
        """Return what finishes a batch that lies on a device.

        Channels come last and seem to come first from there on: convolutions like that.
        """
        if self.scale is None:
            return lambda inputs: inputs
        host = device.type == "cpu"
        gain, shift = torch.tensor(self.scale, device=device), None
        if self.mean_std:
            mean, spread = torch.tensor(self.mean_std, device=device)[:, :, None, None]
            gain, shift = gain / spread, -mean / spread

        def finish(images: Tensor) -> Tensor:
            if images.shape[3] == 1:  # Where channels come last or first, nobody could tell.
                seen = images.reshape(len(images), 1, *images.shape[1:3])
            else:
                seen = images.permute(0, 3, 1, 2)
            edge = self.edge if seen.shape[2:] != (self.edge, self.edge) else None
            if host:
                out = seen = seen.to(torch.float32, memory_format=torch.contiguous_format)
            else:  # One pass reads bytes and writes numbers.
                out = torch.empty_like(seen, dtype=torch.float32 if edge else numbers)
            if shift is None:
                torch.mul(seen, gain, out=out)
            else:
                torch.addcmul(shift, seen, gain, out=out)
            if edge and not host:
                return resize_by_matmul(out, edge, numbers)
            return (_resized(out, (edge, edge)) if edge else out).to(numbers)

        return finish


def _resized(images: Tensor, size: tuple[int, int]) -> Tensor:
    shrinks = size[0] < max(images.shape[2:])
    return interpolate(images, size, mode="bilinear", antialias=shrinks)


def resize_by_matmul(images: Tensor, edge: int, numbers: torch.dtype) -> Tensor:
    """Return square images of another size, channels last in memory, by two products of matrices.

    Accelerators are good at those. To enlarge images of three channels they take many times as
    long for a kernel that is made for it.
    """
    lines = images.permute(0, 2, 3, 1)
    count, height, width, channels = lines.shape
    rows = _weights(height, edge, 1, torch.float32, images.device)
    columns = _weights(width, edge, channels, numbers, images.device)
    tall = torch.bmm(rows.expand(count, edge, height), lines.flatten(2)).to(numbers)
    return (tall @ columns.T).view(count, edge, edge, channels).permute(0, 3, 1, 2)


@cache
def _weights(
    size: int, edge: int, channels: int, numbers: torch.dtype, device: torch.device
) -> Tensor:
    """Return how much each of so many pixels gives to each of ``edge``, channel by channel."""
    pixels = _resized(torch.eye(size)[None, None], (edge, size))[0, 0]
    return torch.kron(pixels, torch.eye(channels)).to(device, numbers)


@dataclass(frozen=True, slots=True)
class Data:
    """What to train on and what to validate on."""

    train: Samples
    validation: Samples
    classes: int
    shape: Shape
    """Channels, height and width that a model sees, or the length of a sequence of tokens."""
    finish: Preprocessing
    on_device: bool = False
    """Whether samples lie on the device already."""

    @property
    def skips(self) -> bool:
        """Whether samples may turn out not to count: files of their own may be broken."""
        return isinstance(self.train, ImageFiles)

    def blank(self, count: int) -> Batch:
        """Return a batch that teaches nothing, as it would travel."""
        if isinstance(self.shape, int):
            nothing = torch.zeros(count, self.shape, dtype=torch.long)
            return nothing, nothing
        channels, height, width = self.shape
        images = torch.zeros(count, height, width, channels, dtype=torch.uint8)
        return images, torch.zeros(count, dtype=torch.long)

    def near(self, device: torch.device, source: Source) -> "Data":
        """Return the same, held by the device if it is to lie there, or is small enough for that.

        Then no worker makes a batch of it and none travels.
        """
        if not (
            isinstance(self.train, TensorSamples) and isinstance(self.validation, TensorSamples)
        ):
            return self
        size = self.train.inputs.nbytes + self.validation.inputs.nbytes
        fits = source.kind in REAL_KINDS and device.type != "cpu" and size <= MAX_ON_DEVICE_BYTES
        if not (source.on_device or fits):
            return self
        train, held = self.train.to(device), self.validation.to(device)
        return replace(self, train=train, validation=held, on_device=True)


def alone(make: Callable[[], bytes]) -> bytes:
    """Find out what no other rank needs to be told."""
    return make()


def load(source: Source, spec: RunSpec | None = None, share: Broadcast = alone) -> Data:
    """Read a data set, or learn where its files are; ``share`` has one rank look for all."""
    if spec:
        refuse_crop(source, spec.augment)
    if source.kind in ("digits", "synthetic"):
        return _held(source, None)
    if source.kind == "synthetic tokens":
        return _language(source)
    if source.kind == "tokens":
        return _stream(source)
    flip = RandomFlip(spec.seed + spec.repeat) if spec and spec.augment != "none" else None
    if source.kind == "images":
        return _pictures(source, spec, share, flip)
    if source.kind == "packed":
        return _packed(source, flip)
    return _held(source, flip)


def _held(source: Source, flip: RandomFlip | None) -> Data:
    """Hold a data set in memory."""
    found = read(source)

    def some(part: Labelled, flip: RandomFlip | None) -> TensorSamples:
        return TensorSamples(
            torch.from_numpy(part.images.copy()), torch.from_numpy(part.labels), flip
        )

    train, held = some(found.train, flip), some(found.validation, None)
    transform = found.transform
    finish = Preprocessing(transform.scale, transform.mean_std, transform.edge)
    return Data(train, held, found.classes, found.shape, finish)


def _edge(source: Source) -> int:
    assert not isinstance(source.shape, int)
    return source.shape[1]


def _packed(source: Source, flip: RandomFlip | None) -> Data:
    from scalewise.frameworks.data.packed import Packed

    packed = Packed.of(source.path)
    train, held = PackedImages(packed.train, flip), PackedImages(packed.validation)
    return Data(
        train, held, len(packed.classes), source.shape, Preprocessing(BYTE_SCALE, IMAGENET_MEAN_STD)
    )


def _pictures(
    source: Source, spec: RunSpec | None, share: Broadcast, flip: RandomFlip | None
) -> Data:
    """List a folder once, for all ranks: a shared file system answers slowly."""
    from scalewise.frameworks.data.image_folder import Listing
    from scalewise.frameworks.data.pixels import Crop

    listing = Listing.from_bytes(share(lambda: Listing.of(source.path).to_bytes()))
    crop = None
    if spec and spec.augment == "crop":
        crop, flip = Crop(spec.seed + spec.repeat), None  # It mirrors by itself.
    refuse = spec is not None and spec.broken == "refuse"
    edge = _edge(source)
    train = ImageFiles(listing, listing.train, edge, refuse=refuse, crop=crop, flip=flip)
    held = ImageFiles(listing, listing.validation, edge, refuse=refuse)
    return Data(
        train,
        held,
        len(listing.classes),
        source.shape,
        Preprocessing(BYTE_SCALE, IMAGENET_MEAN_STD),
    )


def _stream(source: Source) -> Data:
    """Sequences of a text's bytes, or of a file of tokens."""
    from scalewise.frameworks.data import tokens

    found = tokens.read(source.path)
    length = source.shape
    assert isinstance(length, int)
    words = found.vocabulary or 1 + max(
        tokens.token_range(each)[1] for each in (found.train, found.validation) if each is not None
    )
    train = TokenWindows(found.train, length)
    if found.validation is None:
        train, validation = train.apart(HELD_OUT + 1)
    else:
        validation = TokenWindows(found.validation, length)
    return Data(train, validation, words, length, Preprocessing())


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
        TensorSamples(sequences[~held], following[~held]),
        TensorSamples(sequences[held], following[held]),
        words,
        length,
        Preprocessing(),
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
