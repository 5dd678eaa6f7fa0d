"""Exchange gradients between replicas (a DDP communication hook), and clip them.

A few steps are *examined*: they also measure the bytes that compression saves, its error, or the
gradient noise scale.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import GradBucket  # type: ignore[attr-defined]  # Not in stubs.
from torch.distributed.device_mesh import DeviceMesh
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from scalewise.frameworks.gradient_noise import Noise
from scalewise.frameworks.torch.parallel.compression import Compressor
from scalewise.frameworks.torch.parallel.mesh import axis_size
from scalewise.spec import RunSpec

FIRST_COMPARED_STEP, COMPARE_EVERY_STEPS = 10, 50
"""Step 10 and every 50th are examined if gradients are compressed: a second all-reduce, without
compression, then gives the exact average to compare with."""
MAX_BUFFERED_NORMS = 100
"""Squared norms are kept on the device until there are so many; then ranks average them."""


class GradientExchange:
    """Averages gradients over replicas; in examined steps, compares local and averaged ones."""

    def __init__(self, spec: RunSpec, compression: str = "none", powersgd_rank: int = 1) -> None:
        self._compression, self._powersgd_rank = compression, powersgd_rank
        self._noise_every = spec.noise_every
        self._compressors: list[Compressor] = []
        self.loss_factor = 1.0
        """Every loss has to be multiplied by this factor, see ``Compressor``."""
        self._step = 0
        self._is_examined = self._measures_noise = False
        self._buckets: list[BucketComparison] = []
        self._sent_bytes, self._full_bytes = 0, 0
        self._errors: list[Tensor] = []
        self._norms: list[Tensor] = []
        """|local gradient|² and |averaged gradient|² of each step that measures noise."""
        self._noise = Noise(spec.global_batch // spec.replicas, spec.global_batch)

    def register_hook(self, model: DistributedDataParallel, group: dist.ProcessGroup) -> None:
        """Register a communication hook with DDP, if compression or noise needs it."""
        if self._noise_every or self._compression != "none":
            compressor = Compressor(self._compression, self._powersgd_rank, group)
            self._compressors.append(compressor)
            self.loss_factor = compressor.loss_factor
            model.register_comm_hook(compressor, self._exchange_bucket)

    def _exchange_bucket(self, compressor: Compressor, bucket: GradBucket) -> Future[Tensor]:
        if self._is_examined:
            group = compressor.group if self._compression != "none" else None
            self._buckets.append(BucketComparison(bucket.buffer(), group))
        return compressor.exchange(bucket)

    def begin(self, *, is_full: bool = True) -> None:
        """Decide whether to examine the next step. Noise needs full batches on all replicas."""
        self._step += 1
        is_noise_step = self._noise_every > 0 and self._step % self._noise_every == 0
        self._measures_noise = is_full and is_noise_step
        is_compared = self._step == FIRST_COMPARED_STEP or self._step % COMPARE_EVERY_STEPS == 0
        should_examine = self._measures_noise or (is_compared and self._compression != "none")
        self._is_examined = should_examine and bool(self._compressors)
        if self._is_examined:
            self._sent_bytes -= self._total_sent()  # ``end`` adds the total after the step.

    def end(self, scale: float = 1.0) -> None:
        """Evaluate an examined step after its exchange; its loss was multiplied by ``scale``."""
        if not self._is_examined:
            return
        self._is_examined = False
        self._sent_bytes += self._total_sent()
        self._full_bytes += sum(bucket.bytes for bucket in self._buckets)
        squared_norms = torch.stack([bucket.squared_norms() for bucket in self._buckets])
        local, average, error = squared_norms.sum(0)
        if self._compression != "none":
            self._errors.append((error / average).sqrt())
        if self._measures_noise:
            # The sum over replicas has cancelled the ``loss_factor`` in ``scale``, but not in
            # ``local``.
            norms = torch.stack([local, average * self.loss_factor**2])
            self._norms.append(norms.double() / scale**2)
        self._buckets = []
        if len(self._norms) == MAX_BUFFERED_NORMS:
            self._update_noise()

    def state(self) -> dict[str, Tensor]:
        """Return the tensors with which a resumed run compresses as if it had not ended."""
        return {
            f"{index}.{name}": tensor
            for index, compressor in enumerate(self._compressors)
            for name, tensor in compressor.state().items()
        }

    def restore(self, state: Mapping[str, Tensor], device: torch.device) -> None:
        """Load ``state`` of an earlier attempt, which may be empty."""
        for index, compressor in enumerate(self._compressors):
            prefix = f"{index}."
            own = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
            compressor.restore(own, device)

    def _total_sent(self) -> int:
        return sum(compressor.sent_bytes for compressor in self._compressors)

    def _update_noise(self) -> None:
        """Average the buffered norms over replicas, and add them to the noise estimate."""
        if self._norms:
            group = self._compressors[0].group
            norms = torch.stack(self._norms) / group.size()
            dist.all_reduce(norms, group=group)
            for local, average in norms.tolist():
                self._noise.add(local, average)
            self._norms = []

    def compression(self) -> dict[str, Any] | None:
        """Return sent and uncompressed bytes per step, and mean |compressed − exact| / |exact|."""
        if not self._errors:
            return None
        errors = torch.stack(self._errors)
        finite = errors[torch.isfinite(errors)]
        is_powersgd = self._compression == "powersgd"
        return {
            "kind": f"powersgd rank {self._powersgd_rank}" if is_powersgd else self._compression,
            "sent": self._sent_bytes // len(self._errors),
            "whole": self._full_bytes // len(self._errors),
            "error": finite.mean().item() if len(finite) else None,
        }

    def noise(self) -> dict[str, Any] | None:
        """Return the gradient noise scale in samples, None if not measured; all ranks must call."""
        if not self._noise_every or not self._compressors:
            return None
        self._update_noise()
        return self._noise.scale()


class BucketComparison:
    """A bucket's gradients before the exchange, for comparison with the result. If the exchange
    compresses, ``group`` is set, and this class also computes the exact average over it.
    """

    def __init__(self, gradients: Tensor, group: dist.ProcessGroup | None) -> None:
        self.bytes = gradients.nbytes
        self._gradients = gradients
        self._local = _squared_norm(gradients)
        self._exact: Tensor | None = None
        if group:
            self._exact = gradients / group.size()
            self._work: Any = dist.all_reduce(self._exact, group=group, async_op=True)

    def squared_norms(self) -> Tensor:
        """Return the squared norms of local gradient, exact average, and compression error."""
        result = self._gradients  # The hook writes the result into the bucket.
        if self._exact is None:
            return torch.stack([self._local, _squared_norm(result), torch.zeros_like(self._local)])
        self._work.wait()
        error = result - self._exact
        return torch.stack([self._local, _squared_norm(self._exact), _squared_norm(error)])


def _squared_norm(flat: Tensor) -> Tensor:
    return torch.dot(flat, flat)  # torch.norm of float32 is far less accurate.


def clip_gradients(parameters: Iterable[Tensor], max_norm: float, mesh: DeviceMesh) -> Tensor:
    """Clip the norm of all ranks' gradients to ``max_norm``; return the norm before clipping."""
    from torch.nn.utils import clip_grads_with_norm_, get_total_norm  # From version 2.6 on.

    groups: dict[object, list[Tensor]] = {}  # One call cannot mix DTensors of different meshes.
    for parameter in parameters:
        if parameter.grad is not None:
            groups.setdefault(getattr(parameter, "device_mesh", None), []).append(parameter)
    squared_norms = []
    for group in groups.values():
        norm = get_total_norm([p.grad for p in group if p.grad is not None])
        norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
        squared_norms.append(norm.square())
    total = torch.stack(squared_norms).sum()
    if axis_size(mesh, "pipeline") > 1:
        dist.all_reduce(total, group=mesh.get_group("pipeline"))
    norm = total.sqrt()
    for group in groups.values():
        clip_grads_with_norm_(group, max_norm, norm)
    return norm
