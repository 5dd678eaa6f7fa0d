"""Tell batches and replicas apart by a few numbers, without keeping either of them."""

import sys
from hashlib import blake2b
from typing import Any
from weakref import ref

import torch

ELEMENTS = 300
"""Numbers of a batch that go into its digest."""
FEWEST = 8
"""Numbers below which two batches may be equal by chance."""
PARAMETERS = 20
"""Parameters of a model that are summed up."""
LARGEST = 4096
"""Numbers of each of them: few enough for one thread, so that no others are woken."""


@torch.no_grad()
def batch_digest(batch: Any) -> str | None:
    """Return a digest of a batch: some of its numbers, spread over all of it.

    Nothing where it says nothing: a constant, very few numbers, no plain tensor.

    >>> batch_digest(torch.arange(40)) == batch_digest(torch.arange(40).clone())
    True
    >>> batch_digest(torch.ones(40)) is None
    True
    """
    if not isinstance(batch, torch.Tensor) or batch.numel() < FEWEST or _recording(batch):
        return None
    stride = batch.numel() // ELEMENTS | 1  # Odd, or it may meet the same column of each image.
    few = batch.detach().reshape(-1)[::stride][:ELEMENTS]
    values = torch.view_as_real(few) if few.is_complex() else few
    numbers = values.to(torch.float64).tolist()
    if all(each == numbers[0] for each in numbers):
        return None
    return blake2b(repr(numbers).encode(), digest_size=8).hexdigest()


class Weights:
    """Sums of some of a model's parameters, taken now and read at the end."""

    def __init__(self, model: Any) -> None:
        learned = [each for each in model.parameters() if each.requires_grad]
        stride = max(1, len(learned) // PARAMETERS)
        self._chosen = [ref(each) for each in learned[::stride][:PARAMETERS]]
        shapes = repr([tuple(each.shape) for each in learned])
        self._shapes = blake2b(shapes.encode(), digest_size=8).hexdigest()
        self._glances: dict[int, Any] = {}

    @torch.no_grad()
    def glance(self, step: int) -> None:
        """Add the parameters up after this step; nothing waits for the result."""
        alive = [each for chosen in self._chosen if (each := chosen()) is not None]
        if not alive or len(alive) < len(self._chosen) or _recording(alive[0]):
            return
        parts = [each.detach().reshape(-1)[:LARGEST] for each in alive]
        sums = [part.sum(dtype=torch.float64) for part in parts]
        sizes = [part.abs().sum(dtype=torch.float64) for part in parts]
        self._glances[step] = torch.stack([*sums, *sizes])
        if len(self._glances) > 2:
            del self._glances[min(self._glances)]

    def sums(self) -> dict[str, Any]:
        """Return the last sums, and those of the absolute values, by step."""
        seen = []
        for step, both in sorted(self._glances.items()):
            numbers = both.tolist()
            half = len(numbers) // 2
            seen.append({"step": step, "sums": numbers[:half], "sizes": numbers[half:]})
        return {"shapes": self._shapes, "seen": seen}


def sharded(model: Any) -> bool:
    """Say whether a rank holds only its part of the parameters."""
    return any(hasattr(each, "placements") for each in model.parameters()) or _flat(model)


def split(model: Any) -> bool:
    """Say whether ranks compute parts of one model: then they read the same samples by design.

    A program that has loaded what makes pipelines is taken to use it.
    """
    if {"torch.distributed.pipelining", "megatron"} & sys.modules.keys():
        return True
    meshes = [each.device_mesh for each in model.parameters() if hasattr(each, "placements")]
    if any(mesh.ndim > 1 for mesh in meshes):
        return True
    kinds = {type(each).__name__ for each in model.modules()}
    return bool(meshes) and not any(kind.startswith("FSDP") for kind in kinds)


def _flat(model: Any) -> bool:
    return any(type(each).__name__ == "FullyShardedDataParallel" for each in model.modules())


def _recording(tensor: torch.Tensor) -> bool:
    """Say whether a CUDA graph is being recorded: nothing may be read then."""
    return tensor.device.type == "cuda" and torch.cuda.is_current_stream_capturing()
