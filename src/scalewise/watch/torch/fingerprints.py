"""Fingerprints of batches and weights, to compare ranks without storing either."""

import sys
from hashlib import blake2b
from typing import Any
from weakref import ref

import torch

DIGEST_ELEMENTS = 300
MIN_ELEMENTS = 8
"""Elements below which two batches may be equal by chance."""
MAX_PARAMETERS = 20
PARAMETER_ELEMENTS = 4096
"""Elements of each parameter that are summed: few enough for PyTorch to use one thread."""


@torch.no_grad()
def batch_digest(batch: Any) -> str | None:
    """Return a digest of elements spread over the batch; None if all are equal, or very few.

    >>> batch_digest(torch.arange(40)) == batch_digest(torch.arange(40).clone())
    True
    >>> batch_digest(torch.ones(40)) is None
    True
    """
    if not isinstance(batch, torch.Tensor) or batch.numel() < MIN_ELEMENTS or _is_capturing(batch):
        return None
    stride = batch.numel() // DIGEST_ELEMENTS | 1  # Odd: an even stride may read one column.
    elements = batch.detach().reshape(-1)[::stride][:DIGEST_ELEMENTS]
    values = torch.view_as_real(elements) if elements.is_complex() else elements
    numbers = values.to(torch.float64).tolist()
    if all(number == numbers[0] for number in numbers):
        return None
    return blake2b(repr(numbers).encode(), digest_size=8).hexdigest()


class WeightSums:
    """Sums of some parameters, computed without waiting for the device and read at the end."""

    def __init__(self, model: Any) -> None:
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        stride = max(1, len(trained) // MAX_PARAMETERS)
        self._parameters = [ref(parameter) for parameter in trained[::stride][:MAX_PARAMETERS]]
        shapes = repr([tuple(parameter.shape) for parameter in trained])
        self._shapes_digest = blake2b(shapes.encode(), digest_size=8).hexdigest()
        self._sums: dict[int, Any] = {}
        """By step: a tensor of the parameters' sums, then of their sums of absolute values."""
        self._averaged: dict[int, Any] = {}
        """The same after an exchange between two steps, by the number of the exchange."""

    def compute(self, step: int) -> None:
        """Sum the parameters after this step; the host does not wait for the result."""
        self._compute(step, self._sums)

    def compute_averaged(self, exchange: int) -> None:
        """Sum the parameters after ranks may have averaged them."""
        self._compute(exchange, self._averaged)

    @torch.no_grad()
    def _compute(self, step: int, by_step: dict[int, Any]) -> None:
        alive = [parameter for weak in self._parameters if (parameter := weak()) is not None]
        if not alive or len(alive) < len(self._parameters) or _is_capturing(alive[0]):
            return
        parts = [parameter.detach().reshape(-1)[:PARAMETER_ELEMENTS] for parameter in alive]
        sums = [part.sum(dtype=torch.float64) for part in parts]
        absolute_sums = [part.abs().sum(dtype=torch.float64) for part in parts]
        by_step[step] = torch.stack([*sums, *absolute_sums])
        if len(by_step) > 2:  # Two steps are kept, because ranks may end after different steps.
            del by_step[min(by_step)]

    def facts(self) -> dict[str, Any]:
        """Return the last sums of values and of absolute values, by step."""
        facts: dict[str, Any] = {"shapes": self._shapes_digest}
        for name, tensors in (("seen", self._sums), ("averaged", self._averaged)):
            facts[name] = []
            for step, tensor in sorted(tensors.items()):
                numbers = tensor.tolist()
                half = len(numbers) // 2
                sample = {"step": step, "sums": numbers[:half], "sizes": numbers[half:]}
                facts[name].append(sample)
        return facts


def is_sharded(model: Any) -> bool:
    """Return whether a rank holds only a part of the parameters."""
    if any(hasattr(parameter, "placements") for parameter in model.parameters()):
        return True
    return any(type(m).__name__ == "FullyShardedDataParallel" for m in model.modules())


def is_model_parallel(model: Any) -> bool:
    """Return whether each rank computes a part of the model; then ranks must read equal samples."""
    if {"torch.distributed.pipelining", "megatron"} & sys.modules.keys():
        return True  # A pipeline library that was imported is assumed to be used.
    # FSDP without tensor parallelism has a one-dimensional mesh. Any other mesh splits the model.
    meshes = [p.device_mesh for p in model.parameters() if hasattr(p, "placements")]
    if any(mesh.ndim > 1 for mesh in meshes):
        return True
    classes = {type(module).__name__ for module in model.modules()}
    return bool(meshes) and not any(name.startswith("FSDP") for name in classes)


def _is_capturing(tensor: torch.Tensor) -> bool:
    """Return whether a CUDA graph is being captured; reading a tensor would break the capture."""
    return tensor.device.type == "cuda" and torch.cuda.is_current_stream_capturing()
