"""Gradient compression with PyTorch's communication hooks for DDP."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import GradBucket  # type: ignore[attr-defined]  # Not in stubs.
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import (
    bf16_compress_hook,
    fp16_compress_hook,
)
from torch.futures import Future

from scalewise.errors import SpecError
from scalewise.validate import check_choice


def _sum_hook(group: dist.ProcessGroup, bucket: GradBucket) -> Future[Tensor]:
    """Sum a bucket over ranks; ``loss_factor`` replaces a pass that would divide all gradients."""
    work: Any = dist.all_reduce(bucket.buffer(), group=group, async_op=True)
    total: Future[Tensor] = work.get_future().then(lambda done: done.value()[0])
    return total


HOOKS: dict[str, Any] = {"none": _sum_hook, "fp16": fp16_compress_hook, "bf16": bf16_compress_hook}
KINDS = (*HOOKS, "powersgd")
POWERSGD_START_STEP = 5
"""Steps without compression before PowerSGD starts; DDP rebuilds its buckets in the first two."""
_POWERSGD_TENSORS = ("error_dict", "p_memory_dict", "q_memory_dict")
"""Attributes of PyTorch's state of PowerSGD: tensors by the index of a bucket."""
POWERSGD_EPSILON = 1e-8
"""PowerSGD adds it to the norm by which it divides a column, which may consist of zeros."""


def check_compression(kind: str) -> None:
    """Refuse an unknown compression, or one that needs a missing package."""
    check_choice("compression", kind, KINDS)
    if kind == "powersgd" and find_spec("numpy") is None:
        raise SpecError("powersgd needs numpy, which is not installed", hint="pip install numpy")


class Compressor:
    """Averages buckets of gradients over a group, and counts the bytes it passes to collectives.

    With ``none`` it sums; the sum is an average if every loss is multiplied by ``loss_factor``.
    """

    def __init__(self, kind: str, powersgd_rank: int, group: dist.ProcessGroup) -> None:
        self.group = group
        self.sent_bytes = 0
        self.loss_factor = 1 / group.size() if kind == "none" else 1.0
        self._sends_16_bits = kind in ("fp16", "bf16")
        self._hook: Any = HOOKS.get(kind)
        self._state: Any = None
        if kind == "powersgd":
            # Imported only here: in older versions of PyTorch the import needs numpy.
            from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd

            self._hook = powersgd.powerSGD_hook
            self._state = powersgd.PowerSGDState(
                group,
                matrix_approximation_rank=powersgd_rank,
                start_powerSGD_iter=POWERSGD_START_STEP,
                orthogonalization_epsilon=POWERSGD_EPSILON,
            )
        # PowerSGD starts further collectives from callbacks. Only NCCL keeps their order
        # equal on all ranks; with other backends ``exchange`` has to wait for each bucket.
        self._is_blocking = kind == "powersgd" and dist.get_backend(group) != "nccl"

    def exchange(self, bucket: GradBucket) -> Future[Tensor]:
        """Start the exchange of a bucket; return a future of the result."""
        gradients, elements_before = bucket.buffer(), self._powersgd_elements()
        result: Future[Tensor] = self._hook(self._state or self.group, bucket)
        # In the first steps PowerSGD does not compress and counts no elements: it sends all.
        elements = (self._powersgd_elements() - elements_before) or gradients.numel()
        self.sent_bytes += elements * (2 if self._sends_16_bits else gradients.element_size())
        if self._is_blocking:
            result.wait()
        return result

    def state(self) -> dict[str, Tensor]:
        """Return what PowerSGD carries from step to step: the error to make up for, and factors."""
        if self._state is None:
            return {}
        parts = {
            f"{name}.{bucket}": tensor
            for name in _POWERSGD_TENSORS
            for bucket, tensor in getattr(self._state, name).items()
        }
        return {**parts, "iter": torch.tensor(self._state.iter)}

    def restore(self, state: Mapping[str, Tensor], device: torch.device) -> None:
        """Continue with the state of an earlier attempt, if it has one."""
        if self._state is None or "iter" not in state:
            return
        for name in _POWERSGD_TENSORS:
            getattr(self._state, name).clear()
        for key, tensor in state.items():
            name, _, bucket = key.partition(".")
            if bucket:
                getattr(self._state, name)[int(bucket)] = tensor.to(device)
        self._state.iter = int(state["iter"])

    def _powersgd_elements(self) -> int:
        # Index 2 of PyTorch's statistics: the number of elements exchanged so far.
        return int(self._state.compression_stats()[2]) if self._state else 0
