"""Gradients made smaller for their exchange, in one of PyTorch's own ways."""

from importlib.util import find_spec
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.distributed import GradBucket  # type: ignore[attr-defined]  # Not in stubs.
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import (
    bf16_compress_hook,
    fp16_compress_hook,
)
from torch.futures import Future

from scalewise.errors import SpecError
from scalewise.validate import choice


def _sum(group: dist.ProcessGroup, bucket: GradBucket) -> Future[Tensor]:
    """Add buckets up as they are: to divide them is a pass over all gradients, every step."""
    adding: Any = dist.all_reduce(bucket.buffer(), group=group, async_op=True)
    summed: Future[Tensor] = adding.get_future().then(lambda done: done.value()[0])
    return summed


HOOKS: dict[str, Any] = {
    "none": _sum,
    "fp16": fp16_compress_hook,
    "bf16": bf16_compress_hook,
}
KINDS = (*HOOKS, "powersgd")
POWERSGD_START_STEP = 5
"""Steps that PowerSGD exchanges as they are before it begins; DDP needs two for its buckets."""
POWERSGD_EPSILON = 1e-8
"""Added to a column's length, or one of zeros would become none of numbers."""


def check_compression(kind: str) -> None:
    """Refuse a compression that there is not, here."""
    choice("compression", kind, KINDS)
    if kind == "powersgd" and find_spec("numpy") is None:
        raise SpecError("powersgd needs numpy, which is not installed", hint="pip install numpy")


class Compressor:
    """Averages buckets of gradients over a group; counts the bytes that it gives away for that.

    With ``none`` it adds them up: then the loss is to be multiplied by ``share``.
    """

    def __init__(self, kind: str, rank: int, group: dist.ProcessGroup) -> None:
        self.group = group
        self.sent = 0
        self.share = 1 / group.size() if kind == "none" else 1.0
        self._half = kind in ("fp16", "bf16")
        self._hook, self._state = HOOKS.get(kind), None
        if kind == "powersgd":
            self._hook, self._state = _powersgd(rank, group)
        # PowerSGD exchanges more as soon as something has come back. Only NCCL has the
        # same order of that on all ranks; elsewhere one bucket waits for the other.
        self._waits = kind == "powersgd" and dist.get_backend(group) != "nccl"

    def exchange(self, bucket: GradBucket) -> Future[Tensor]:
        """Return what the group has made of the bucket, as it arrives."""
        gradients, before = bucket.buffer(), self._elements()
        assert self._hook
        coming: Future[Tensor] = self._hook(self._state or self.group, bucket)
        elements = self._elements() - before or gradients.numel()
        self.sent += elements * (2 if self._half else gradients.element_size())
        if self._waits:
            coming.wait()
        return coming

    def _elements(self) -> int:
        """Return how many numbers PowerSGD has exchanged since it began."""
        return int(self._state.compression_stats()[2]) if self._state else 0


def _powersgd(rank: int, group: dist.ProcessGroup) -> tuple[Any, Any]:
    """Return PyTorch's hook and its memory; older versions need numpy to import them."""
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd

    state: Any = powersgd.PowerSGDState(
        group,
        matrix_approximation_rank=rank,
        start_powerSGD_iter=POWERSGD_START_STEP,
        orthogonalization_epsilon=POWERSGD_EPSILON,
    )
    return powersgd.powerSGD_hook, state


def compression_label(kind: str, rank: int) -> str:
    """Return what a compression is called.

    >>> words("powersgd", 2), words("fp16", 1)
    ('powersgd rank 2', 'fp16')
    """
    return f"{kind} rank {rank}" if kind == "powersgd" else kind
