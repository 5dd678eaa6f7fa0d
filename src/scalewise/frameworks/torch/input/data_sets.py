"""Training and validation data, and the preprocessing of raw batches into model inputs."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import interpolate

from scalewise.frameworks.data_source import Shape, Source, refuse_crop
from scalewise.frameworks.in_memory_data import (
    BYTE_SCALE,
    HELD_OUT,
    IMAGENET_MEAN_STD,
    ImageTransform,
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
"""In-memory data sets that are not synthetic. Small ones are copied to an accelerator."""
MAX_ON_DEVICE_BYTES = 2**30
"""The size up to which a data set of REAL_KINDS is copied, about six times that of CIFAR-10."""


@dataclass(frozen=True, slots=True)
class Preprocessing(ImageTransform):
    """Turns raw bytes into model inputs: scale, normalize, resize."""

    def build(
        self, device: torch.device, dtype: torch.dtype = torch.float32
    ) -> Callable[[Tensor], Tensor]:
        """Return a function that turns NHWC bytes into NCHW inputs, channels_last if not on CPU."""
        if self.scale is None:  # Tokens.
            return lambda inputs: inputs
        on_cpu = device.type == "cpu"
        gain, shift = torch.tensor(self.scale, device=device), None
        if self.mean_std:
            mean, std = torch.tensor(self.mean_std, device=device)[:, :, None, None]
            gain, shift = gain / std, -mean / std

        def preprocess(images: Tensor) -> Tensor:
            if images.shape[3] == 1:  # One channel: NCHW and NHWC are the same in memory.
                pixels = images.reshape(len(images), 1, *images.shape[1:3])
            else:
                pixels = images.permute(0, 3, 1, 2)
            new_edge = self.edge if pixels.shape[2:] != (self.edge, self.edge) else None
            if on_cpu:
                out = pixels = pixels.to(torch.float32, memory_format=torch.contiguous_format)
            else:  # Convert, scale and normalize in one kernel.
                out = torch.empty_like(pixels, dtype=torch.float32 if new_edge else dtype)
            if shift is None:
                torch.mul(pixels, gain, out=out)
            else:
                torch.addcmul(shift, pixels, gain, out=out)
            if new_edge and not on_cpu:
                return resize_by_matmul(out, new_edge, dtype)
            return (_interpolate(out, (new_edge, new_edge)) if new_edge else out).to(dtype)

        return preprocess


PHOTO_PREPROCESSING = Preprocessing(BYTE_SCALE, IMAGENET_MEAN_STD)


def _interpolate(images: Tensor, size: tuple[int, int]) -> Tensor:
    shrinks = size[0] < max(images.shape[2:])
    return interpolate(images, size, mode="bilinear", antialias=shrinks)


def resize_by_matmul(images: Tensor, edge: int, dtype: torch.dtype) -> Tensor:
    """Return resized images, channels last. Accelerators do this faster than ``interpolate``."""
    nhwc = images.permute(0, 2, 3, 1)
    count, height, width, channels = nhwc.shape
    row_weights = _resize_weights(height, edge, 1, torch.float32, images.device)
    column_weights = _resize_weights(width, edge, channels, dtype, images.device)
    resized = torch.bmm(row_weights.expand(count, edge, height), nhwc.flatten(2)).to(dtype)
    return (resized @ column_weights.T).view(count, edge, edge, channels).permute(0, 3, 1, 2)


@cache
def _resize_weights(
    size: int, edge: int, channels: int, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Return the matrix that resizes a line from ``size`` to ``edge`` pixels of all channels."""
    pixel_weights = _interpolate(torch.eye(size)[None, None], (edge, size))[0, 0]
    return torch.kron(pixel_weights, torch.eye(channels)).to(device, dtype)


@dataclass(frozen=True, slots=True)
class Data:
    """Training and validation samples, and what a model needs to know about them."""

    train: Samples
    validation: Samples
    classes: int
    shape: Shape
    """Channels, height and width of the model's input, or the length of a token sequence."""
    preprocessing: Preprocessing
    on_device: bool = False
    """Whether the samples are in the device's memory already."""

    @property
    def may_ignore_labels(self) -> bool:
        """Whether samples may have IGNORED_LABEL, as those of broken image files have."""
        return isinstance(self.train, ImageFiles)

    def blank_batch(self, count: int) -> Batch:
        """Return a raw batch of zeros."""
        if isinstance(self.shape, int):
            tokens = torch.zeros(count, self.shape, dtype=torch.long)
            return tokens, tokens
        channels, height, width = self.shape
        images = torch.zeros(count, height, width, channels, dtype=torch.uint8)
        return images, torch.zeros(count, dtype=torch.long)

    def placed(self, device: torch.device, source: Source) -> "Data":
        """Return the data; on the device, if the source says so or it is small and real."""
        train, validation = self.train, self.validation
        if not isinstance(train, TensorSamples) or not isinstance(validation, TensorSamples):
            return self
        size = train.inputs.nbytes + validation.inputs.nbytes
        fits_accelerator = size <= MAX_ON_DEVICE_BYTES and device.type != "cpu"
        if not (source.on_device or (source.kind in REAL_KINDS and fits_accelerator)):
            return self
        train, validation = train.to(device), validation.to(device)
        return replace(self, train=train, validation=validation, on_device=True)


def load(source: Source, spec: RunSpec | None = None) -> Data:
    """Load a data set. Of an image folder, only list the files: on rank 0, for all ranks."""
    if spec:
        refuse_crop(source, spec.augment)
    if source.kind in ("digits", "synthetic"):
        return _load_in_memory(source, None)
    if source.kind == "synthetic tokens":
        return _make_tokens(source)
    if source.kind == "tokens":
        return _load_tokens(source)
    flip = RandomFlip(spec.seed + spec.repeat) if spec and spec.augment != "none" else None
    if source.kind == "images":
        return _list_images(source, spec, flip)
    if source.kind == "packed":
        return _open_packed(source, flip)
    return _load_in_memory(source, flip)


def _load_in_memory(source: Source, flip: RandomFlip | None) -> Data:
    arrays = read(source)
    train, validation = (
        TensorSamples(torch.from_numpy(part.images.copy()), torch.from_numpy(part.labels), augment)
        for part, augment in ((arrays.train, flip), (arrays.validation, None))
    )
    transform = arrays.transform
    preprocessing = Preprocessing(transform.scale, transform.mean_std, transform.edge)
    return Data(train, validation, arrays.classes, arrays.shape, preprocessing)


def _open_packed(source: Source, flip: RandomFlip | None) -> Data:
    from scalewise.frameworks.data.packed import Packed

    packed = Packed.of(source.path)
    train, validation = PackedImages(packed.train, flip), PackedImages(packed.validation)
    return Data(train, validation, len(packed.classes), source.shape, PHOTO_PREPROCESSING)


def _list_images(source: Source, spec: RunSpec | None, flip: RandomFlip | None) -> Data:
    """List an image folder on one rank, for all ranks: shared file systems list slowly."""
    from scalewise.frameworks.data.image_folder import Listing
    from scalewise.frameworks.data.pixels import Crop

    is_distributed = dist.is_initialized()
    content = [b"" if is_distributed and dist.get_rank() else Listing.of(source.path).to_bytes()]
    if is_distributed:
        dist.broadcast_object_list(content)
    listing = Listing.from_bytes(content[0])
    crop = None
    if spec and spec.augment == "crop":
        crop, flip = Crop(spec.seed + spec.repeat), None  # Crop also mirrors.
    refuse = spec is not None and spec.broken == "refuse"
    assert not isinstance(source.shape, int)
    edge = source.shape[1]
    train = ImageFiles(listing, listing.train, edge, refuse=refuse, crop=crop, flip=flip)
    validation = ImageFiles(listing, listing.validation, edge, refuse=refuse)
    return Data(train, validation, len(listing.classes), source.shape, PHOTO_PREPROCESSING)


def _load_tokens(source: Source) -> Data:
    """Return sequences of tokens from a file; the tokens of a text are its bytes."""
    from scalewise.frameworks.data import tokens

    streams = tokens.read(source.path)
    length = source.shape
    assert isinstance(length, int)
    present = [stream for stream in (streams.train, streams.validation) if stream is not None]
    vocabulary = streams.vocabulary or 1 + max(tokens.token_range(s)[1] for s in present)
    train = TokenWindows(streams.train, length)
    if streams.validation is None:
        train, validation = train.split(HELD_OUT + 1)
    else:
        validation = TokenWindows(streams.validation, length)
    return Data(train, validation, vocabulary, length, Preprocessing())


def _make_tokens(source: Source) -> Data:
    """Make a synthetic language in which a token mostly determines the next one."""
    length, vocabulary = source.shape, source.vocabulary
    assert isinstance(length, int)
    # After every HELD_OUT training sequences one is added for validation, at least one in all.
    count = source.count + max(1, source.count // HELD_OUT)
    stream = _random_tokens(count * length + 1, vocabulary)
    sequences, labels = (part.reshape(count, length) for part in (stream[:-1], stream[1:]))
    is_validation = torch.arange(count) % (HELD_OUT + 1) == HELD_OUT
    if not is_validation.any():
        is_validation[-1] = True
    train, validation = (
        TensorSamples(sequences[mask], labels[mask]) for mask in (~is_validation, is_validation)
    )
    return Data(train, validation, vocabulary, length, Preprocessing())


def _random_tokens(length: int, vocabulary: int) -> Tensor:
    """Return tokens. Four in five are the fixed successor of the previous token, others random."""
    generator = torch.Generator().manual_seed(20)  # Any fixed seed: all ranks need the same.
    successors = torch.randperm(vocabulary, generator=generator).tolist()
    random_tokens = torch.randint(0, vocabulary, (length,), generator=generator).tolist()
    is_successor = (torch.rand(length, generator=generator) < 0.8).tolist()
    tokens = [0]
    for n in range(1, length):
        tokens.append(successors[tokens[-1]] if is_successor[n] else random_tokens[n])
    return torch.tensor(tokens)
