"""Sketches of weights, gradients and updates: a few numbers per layer that show a difference.

A sketch of a vector has ``PROJECTIONS`` sums of some of its elements with random signs, and the sum
of the squares of these elements. Which elements are used, and their signs, depend only on the
layer's name and the element's index in the unsharded tensor. So the same layer has the same sketch
on any number of devices, and the sketches of its shards add up to that of the layer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import torch
from torch import Tensor

PROJECTIONS = 8
MAX_ELEMENTS = 4096
"""Elements of a layer that are used; if it has more, one of each of so many equal intervals."""
FIRST_SKETCHED_STEPS = (0, 1, 2, 8, 9, 20)
LATER_INTERVAL = 100
"""After the first sketched steps, one of so many steps is sketched."""
_PATTERNS = 1 << PROJECTIONS
_POSITIVE = (1 << 63) - 1


def is_sketched(step: int) -> bool:
    """Return whether an optimizer step, counted from 0, is sketched.

    >>> [step for step in range(300) if is_sketched(step)]
    [0, 1, 2, 8, 9, 20, 100, 200]
    """
    return step in FIRST_SKETCHED_STEPS or (step > 0 and step % LATER_INTERVAL == 0)


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of a tensor that this rank holds: a block of it, or all of it."""

    shape: tuple[int, ...]
    """The shape of the unsharded tensor."""
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    shard: tuple[int, int] | None = None
    """Which shard this is, and of how many; None if it is the complete tensor."""


class Sketcher:
    """Sketches the same named tensors again and again; prepares their elements and signs once."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.names = tuple(tensors)
        first = next(iter(tensors.values()), None)
        self._device = torch.device("cpu") if first is None else first.device
        pieces = [piece_of(tensor) for tensor in tensors.values()]
        self._shards = [piece.shard for piece in pieces]
        # Not every other accelerator has 64-bit floating-point numbers.
        self._sum_device = self._device if self._device.type in ("cpu", "cuda") else "cpu"
        codes, self._positions = [], []
        for index, (name, piece) in enumerate(zip(tensors, pieces)):
            positions, patterns = _elements(name, piece)
            self._positions.append(positions.to(self._device))
            codes.append(patterns + index * _PATTERNS)
        self._codes = (torch.cat(codes) if codes else torch.zeros(0).long()).to(self._sum_device)
        self._layers = self._codes // _PATTERNS
        bits = torch.arange(_PATTERNS).unsqueeze(1) >> torch.arange(PROJECTIONS)
        self._signs = (1 - 2 * (bits & 1)).double().to(self._sum_device)

    @torch.no_grad()
    def elements(self, tensors: Sequence[Tensor | None]) -> Tensor:
        """Return a copy of the used elements of all tensors; those of a missing tensor are 0."""
        parts = []
        for tensor, positions in zip(tensors, self._positions):
            if tensor is None:
                parts.append(torch.zeros(len(positions), device=self._device))
                continue
            local = local_part(tensor)
            if local.device != self._device:
                local = local.to(self._device)
            # Shards at the end may be empty, and ``take`` refuses those.
            parts.append(local.reshape(-1) if not local.numel() else torch.take(local, positions))
        if not parts:
            return torch.zeros(0, device=self._device)
        return torch.cat(parts)

    @torch.no_grad()
    def sketch(
        self, elements: Tensor, present: Sequence[bool] | None = None, divisor: Any = None
    ) -> dict[str, dict[str, Any]]:
        """Return the sketch of every layer, as in the rank file; waits once for the device.

        ``present`` says which layers to return. All elements are divided by ``divisor``, if given.
        """
        values = elements.to(self._sum_device).double()
        if divisor is not None:
            values = values / divisor
        count = len(self.names)
        # Elements with equal signs in all projections are added first: a pattern has a bit for
        # each projection. That is one addition for each element instead of eight.
        by_pattern = values.new_zeros(count * _PATTERNS).index_add_(0, self._codes, values)
        squares = values.new_zeros(count).index_add_(0, self._layers, values * values)
        sums = by_pattern.view(count, _PATTERNS) @ self._signs
        rows = torch.cat([sums, squares.unsqueeze(1)], dim=1).tolist()
        sketches = {}
        for index, (name, row) in enumerate(zip(self.names, rows)):
            if present is None or present[index]:
                shard = self._shards[index]
                part = {"part": "shard", "shard": list(shard)} if shard else {"part": "whole"}
                sketches[name] = {"sums": row[:-1], "squares": row[-1], **part}
        return sketches


def local_part(tensor: Tensor) -> Tensor:
    """Return this rank's part of a tensor, dense and without its history.

    If ranks hold summands of the tensor (``Partial``), they first add them up: all ranks must call.
    """
    if hasattr(tensor, "placements"):
        distributed: Any = tensor.detach()
        if any(placement.is_partial() for placement in distributed.placements):
            distributed = distributed.redistribute(placements=_without_partial(distributed))
        tensor = distributed.to_local()
    tensor = tensor.detach()
    return tensor.to_dense() if tensor.is_sparse else tensor


def _without_partial(distributed: Any) -> list[Any]:
    try:
        from torch.distributed.tensor import Replicate
    except ImportError:  # In version 2.4 of PyTorch this class is private.
        from torch.distributed._tensor import Replicate  # type: ignore[attr-defined]  # Old.
    placements = distributed.placements
    return [Replicate() if placement.is_partial() else placement for placement in placements]


@torch.no_grad()
def total_length(tensors: Sequence[Tensor]) -> float | None:
    """Return the length of the vector of all elements of these tensors; None if they are sharded.

    >>> total_length([torch.tensor([2.0, 3.0]), torch.tensor([[6.0]])])
    7.0
    """
    if any(hasattr(tensor, "placements") for tensor in tensors):
        return None
    lengths = [torch.linalg.vector_norm(local_part(tensor)).float().cpu() for tensor in tensors]
    return float(torch.linalg.vector_norm(torch.stack(lengths)))


def piece_of(tensor: Tensor) -> Piece:
    """Return which part of a tensor this rank holds; only a DTensor may be sharded."""
    shape = tuple(tensor.shape)
    whole = Piece(shape, (0,) * len(shape), shape)
    distributed: Any = tensor
    if not hasattr(tensor, "placements"):
        return whole
    mesh, placements = distributed.device_mesh, distributed.placements
    index, count = 0, 1
    for size, coordinate, placement in zip(mesh.shape, mesh.get_coordinate() or (), placements):
        # ``is_shard`` is False for the strided shards of FSDP over tensor parallelism.
        if size > 1 and not placement.is_replicate() and not placement.is_partial():
            index, count = index * size + coordinate, count * size
    if count == 1:
        return whole
    try:
        from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
    except ImportError:  # In version 2.4 of PyTorch the package has another name.
        from torch.distributed._tensor._utils import (  # type: ignore[import-not-found,no-redef]
            compute_local_shape_and_global_offset,
        )
    sizes, offsets = compute_local_shape_and_global_offset(tensor.shape, mesh, placements)
    return Piece(shape, tuple(offsets), tuple(sizes), (index, count))


def _elements(name: str, piece: Piece) -> tuple[Tensor, Tensor]:
    """Return the positions, in this rank's part, of a layer's elements that are used; and their
    sign patterns, numbers of ``PROJECTIONS`` bits: bit j is set if the sign is negative in sum j.
    """
    key = int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big", signed=True)
    size = 1
    for length in piece.shape:
        size *= length
    if size <= MAX_ELEMENTS:
        indices = torch.arange(size)
    else:
        bounds = torch.arange(MAX_ELEMENTS + 1) * size // MAX_ELEMENTS
        starts, widths = bounds[:-1], bounds.diff()
        indices = starts + (mix_bits(starts ^ key) & _POSITIVE) % widths
    patterns = mix_bits(indices ^ ~key) & (_PATTERNS - 1)
    if piece.shard is None:
        return indices, patterns
    positions, inside = torch.zeros_like(indices), torch.ones_like(indices, dtype=torch.bool)
    remaining, stride = indices, 1
    for length, offset, own in zip(*(each[::-1] for each in _dimensions(piece))):
        coordinate = remaining % length - offset
        remaining = remaining // length
        inside &= (coordinate >= 0) & (coordinate < own)
        positions += coordinate * stride
        stride *= own
    return positions[inside], patterns[inside]


def _dimensions(piece: Piece) -> tuple[tuple[int, ...], ...]:
    return piece.shape, piece.offsets, piece.sizes


def mix_bits(values: Tensor) -> Tensor:
    """Return a hash of each 64-bit integer (the finalizer of splitmix64).

    Random generators are not used, because their numbers may change with the version of PyTorch.
    """
    values = (values ^ _shift_right(values, 30)) * -0x40A7B892E31B1A47
    values = (values ^ _shift_right(values, 27)) * -0x6B2FB644ECCEEE15
    return values ^ _shift_right(values, 31)


def _shift_right(values: Tensor, bits: int) -> Tensor:
    return (values >> bits) & ((1 << (64 - bits)) - 1)  # Without the sign's copies.


SAMPLE_ELEMENTS = 256
"""Elements of a sample's tensor that its fingerprint depends on."""


@torch.no_grad()
def sample_fingerprints(tensors: Sequence[Tensor]) -> list[str]:
    """Return a 64-bit hash of each sample of a batch; row n of each tensor belongs to sample n.

    >>> rows = torch.arange(6.0).reshape(3, 2)
    >>> sample_fingerprints([rows]) == sample_fingerprints([rows.flip(0)])[::-1]
    True
    """
    hashes: Tensor | None = None
    for number, tensor in enumerate(tensors):
        rows = local_part(tensor).reshape(len(tensor), -1)
        stride = -(-rows.shape[1] // SAMPLE_ELEMENTS)  # Rounded up.
        numbers = rows[:, :: max(1, stride)]
        if numbers.is_complex():
            numbers = torch.view_as_real(numbers).flatten(1)
        bits = numbers.double().cpu().view(torch.int64)
        columns = torch.arange(bits.shape[1]) + number * SAMPLE_ELEMENTS * 2
        mixed = mix_bits(bits ^ mix_bits(columns + 1)).sum(1)
        hashes = mixed if hashes is None else mix_bits(hashes) ^ mixed
    if hashes is None:
        return []
    return [f"{number & ((1 << 64) - 1):016x}" for number in mix_bits(hashes).tolist()]
