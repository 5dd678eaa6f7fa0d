"""Read batches of samples, given their indices, from memory, image files or token streams."""

import sys
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from scalewise.errors import Broken

IGNORED_LABEL = -100
"""A sample with this label does not count: the default ``ignore_index`` of PyTorch's losses."""
Batch = tuple[Tensor, Tensor]
"""Inputs and their labels."""


class Samples(Protocol):
    """The samples to train or validate on."""

    def __len__(self) -> int: ...

    def batch(self, indices: Tensor, epoch: int) -> Batch:
        """Return the samples with these indices. Random augmentation differs between epochs."""
        ...


class TensorSamples:
    """Samples in memory: images and their classes, or tokens and the tokens that follow them."""

    def __init__(self, inputs: Tensor, labels: Tensor, flip: "RandomFlip | None" = None) -> None:
        self.inputs, self.labels, self._flip = inputs, labels, flip

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, indices: Tensor, epoch: int) -> Batch:
        device_indices = indices.to(self.inputs.device, non_blocking=True)
        inputs, labels = self.inputs[device_indices], self.labels[device_indices]
        return self._flip(inputs, indices, epoch) if self._flip else inputs, labels

    def to(self, device: torch.device) -> "TensorSamples":
        return TensorSamples(self.inputs.to(device), self.labels.to(device), self._flip)


class RandomFlip:
    """Mirrors each image with probability ½. Seed, epoch and sample index decide, not the batch."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def __call__(self, images: Tensor, indices: Tensor, epoch: int) -> Tensor:
        """Return NHWC images, some of them mirrored along the width."""
        mirrored = self.draw(indices, epoch)[:, None, None, None]
        return torch.where(mirrored.to(images.device, non_blocking=True), images.flip(2), images)

    def draw(self, indices: Tensor, epoch: int) -> Tensor:
        """Return for each of these samples whether it is mirrored."""
        generator = torch.Generator().manual_seed((self._seed << 20) + epoch)
        # Drawn for all indices from 0 on: a sample gets the same number in any batch.
        return torch.rand(int(indices.max()) + 1, generator=generator)[indices] < 0.5


class PackedImages:
    """Decoded images, the rows of a large file that ``scalewise data make --packed`` has made."""

    def __init__(self, rows: Any, flip: RandomFlip | None = None) -> None:
        self._rows, self._flip = rows, flip
        self._labels = torch.from_numpy(rows.labels).long()

    def __len__(self) -> int:
        return len(self._rows)

    def batch(self, indices: Tensor, epoch: int) -> Batch:
        inputs = torch.from_numpy(self._rows.read(indices.tolist()))
        return self._flip(inputs, indices, epoch) if self._flip else inputs, self._labels[indices]


class ImageFiles:
    """Image files, decoded on demand. A broken file raises an error if ``refuse`` is set. Otherwise
    it is reported once on stderr, and its label in the batch is IGNORED_LABEL.
    """

    def __init__(
        self,
        listing: Any,
        split: Any,
        edge: int,
        *,
        refuse: bool,
        crop: Any = None,
        flip: RandomFlip | None = None,
    ) -> None:
        self._listing, self._split, self._edge = listing, split, edge
        self._refuse, self._crop, self._flip = refuse, crop, flip
        self._labels = torch.from_numpy(split.labels.copy()).long()
        self._reported: set[int] = set()

    def __len__(self) -> int:
        return len(self._split)

    def batch(self, indices: Tensor, epoch: int) -> Batch:
        from scalewise.frameworks.data.pixels import decode_image

        inputs = torch.empty(len(indices), self._edge, self._edge, 3, dtype=torch.uint8)
        labels = self._labels[indices]
        pixels = inputs.numpy()  # The same memory.
        mirrored = self._flip.draw(indices, epoch).tolist() if self._flip else ()
        for row, index in enumerate(indices.tolist()):
            try:
                path = self._listing.path(self._split, index)
                decode_image(
                    path, self._edge, out=pixels[row], crop=self._crop, epoch=epoch, index=index
                )
            except Broken as error:
                if self._refuse:
                    raise
                if index not in self._reported:
                    self._reported.add(index)
                    print(f"left out: {error}", file=sys.stderr, flush=True)
                pixels[row], labels[row] = 0, IGNORED_LABEL
            if mirrored and mirrored[row]:
                pixels[row] = pixels[row][:, ::-1].copy()
        return inputs, labels

    def path(self, index: int) -> str:
        """Return the path of an image, printable on any terminal."""
        from scalewise.frameworks.data import printable

        return printable(self._listing.path(self._split, index))


class TokenWindows:
    """A stream of tokens, cut into windows of one length; ``windows`` selects some by number."""

    def __init__(self, stream: Any, length: int, windows: Sequence[int] | None = None) -> None:
        self._stream, self._length = stream, length
        self._windows = range((len(stream) - 1) // length) if windows is None else windows

    def split(self, every: int) -> "tuple[TokenWindows, TokenWindows]":
        """Return windows for training, and for validation (each ``every``-th, or else the last)."""
        validation = [n for n in self._windows if n % every == every - 1] or [*self._windows[-1:]]
        train = sorted({*self._windows} - {*validation})
        parts = [TokenWindows(self._stream, self._length, part) for part in (train, validation)]
        return parts[0], parts[1]

    def __len__(self) -> int:
        return len(self._windows)

    def batch(self, indices: Tensor, epoch: int) -> Batch:
        """Read these sequences; the label of a token is the next token."""
        length = self._length
        starts = [self._windows[n] * length for n in indices.tolist()]
        rows = [self._stream[start : start + length + 1].astype("int64") for start in starts]
        tokens = torch.stack([torch.from_numpy(row) for row in rows])
        return tokens[:, :-1], tokens[:, 1:]
