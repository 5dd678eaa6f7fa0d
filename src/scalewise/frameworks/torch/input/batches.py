"""Batches by the numbers of their samples: from memory, from files, from one long stream.

Images are bytes here, height × width × channels, as they lie on disks and travel.
"""

import sys
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from scalewise.errors import Broken

IGNORED_LABEL = -100
"""The label of a sample that does not count, as PyTorch's losses have it."""
Batch = tuple[Tensor, Tensor]
"""Inputs and their labels."""


class Samples(Protocol):
    """What one trains or validates on."""

    def __len__(self) -> int: ...

    def batch(self, indices: Tensor, epoch: int) -> Batch:
        """Return these samples as they are in an epoch: chance may change them."""
        ...


class TensorSamples:
    """Samples in memory: images and their labels, or tokens and the next ones."""

    def __init__(self, inputs: Tensor, labels: Tensor, flip: "RandomFlip | None" = None) -> None:
        self.inputs, self.labels, self._flip = inputs, labels, flip

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, indices: Tensor, epoch: int) -> Batch:
        """Return these samples, some mirrored."""
        there = indices.to(self.inputs.device, non_blocking=True)
        inputs = self.inputs[there]
        return self._flip(inputs, indices, epoch) if self._flip else inputs, self.labels[there]

    def to(self, device: torch.device) -> "TensorSamples":
        """Return the same, held by a device."""
        return TensorSamples(self.inputs.to(device), self.labels.to(device), self._flip)


class RandomFlip:
    """Mirrors every other image; which, is drawn from seed, epoch and sample alone."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def __call__(self, images: Tensor, indices: Tensor, epoch: int) -> Tensor:
        """Return images, channels last, of which some are mirrored."""
        mirrored = self.drawn(indices, epoch)[:, None, None, None]
        return torch.where(mirrored.to(images.device, non_blocking=True), images.flip(2), images)

    def drawn(self, indices: Tensor, epoch: int) -> Tensor:
        """Return which of these samples are mirrored."""
        chance = torch.Generator().manual_seed((self._seed << 20) + epoch)
        return torch.rand(int(indices.max()) + 1, generator=chance)[indices] < 0.5


class PackedImages:
    """Images that were decoded beforehand and lie in large files."""

    def __init__(self, rows: Any, flip: RandomFlip | None = None) -> None:
        self._rows, self._flip = rows, flip
        self._labels = torch.from_numpy(rows.labels).long()

    def __len__(self) -> int:
        return len(self._rows)

    def batch(self, indices: Tensor, epoch: int) -> Batch:
        """Read these images, some mirrored."""
        inputs = torch.from_numpy(self._rows.read(indices.tolist()))
        return self._flip(inputs, indices, epoch) if self._flip else inputs, self._labels[indices]


class ImageFiles:
    """Images in files of their own, decoded as they are asked for.

    One that is broken is told and left out: its label says that it does not count. So it may be
    with all images of a batch.
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
        self._told: set[int] = set()

    def __len__(self) -> int:
        return len(self._split)

    def batch(self, indices: Tensor, epoch: int) -> Batch:
        """Decode these images."""
        from scalewise.frameworks.data.pixels import decode_image

        inputs = torch.empty(len(indices), self._edge, self._edge, 3, dtype=torch.uint8)
        labels = self._labels[indices]
        rows = inputs.numpy()
        mirrored = self._flip.drawn(indices, epoch).tolist() if self._flip else ()
        for n, index in enumerate(indices.tolist()):
            try:
                path = self._listing.path(self._split, index)
                decode_image(
                    path, self._edge, out=rows[n], crop=self._crop, epoch=epoch, index=index
                )
            except Broken as broken:
                if self._refuse:
                    raise
                self._tell(index, broken)
                rows[n], labels[n] = 0, IGNORED_LABEL
            if mirrored and mirrored[n]:
                rows[n] = rows[n][:, ::-1].copy()
        return inputs, labels

    def path(self, index: int) -> str:
        """Return the file of an image, as any terminal can print it."""
        from scalewise.frameworks.data import printable

        return printable(self._listing.path(self._split, index))

    def _tell(self, index: int, broken: Broken) -> None:
        if index not in self._told:
            self._told.add(index)
            print(f"left out: {broken}", file=sys.stderr, flush=True)


class TokenWindows:
    """Sequences of one length, one after the other, out of a stream of tokens."""

    def __init__(self, stream: Any, length: int, which: Sequence[int] | None = None) -> None:
        self._stream, self._length = stream, length
        self._which = range((len(stream) - 1) // length) if which is None else which

    def apart(self, every: int) -> "tuple[TokenWindows, TokenWindows]":
        """Return most of the sequences, and every so many-th."""
        last = len(self) - 1
        held = [n for n in self._which if n % every == every - 1 or n == last < every]
        most = sorted({*self._which} - {*held})
        return TokenWindows(self._stream, self._length, most), TokenWindows(
            self._stream, self._length, held
        )

    def __len__(self) -> int:
        return len(self._which)

    def batch(self, indices: Tensor, epoch: int) -> Batch:
        """Read these sequences, and the token after each of their tokens."""
        length = self._length
        starts = [self._which[n] * length for n in indices.tolist()]
        rows = [
            torch.from_numpy(self._stream[start : start + length + 1].astype("int64"))
            for start in starts
        ]
        both = torch.stack(rows)
        return both[:, :-1], both[:, 1:]
