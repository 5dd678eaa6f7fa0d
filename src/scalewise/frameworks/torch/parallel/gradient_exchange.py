"""What the gradients of a replica go through on their way to the others.

Almost every step they are only averaged, compressed if the run says so. At a few
steps they are looked at too: what compression saves, how far it is off, and how
much the gradients of replicas differ, which is the noise of their samples.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import GradBucket  # type: ignore[attr-defined]  # Not in stubs.
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from scalewise.frameworks.gradient_noise import Noise
from scalewise.frameworks.torch.parallel.compression import Compressor, compression_label
from scalewise.spec import RunSpec

FIRST_COMPARED_STEP, COMPARE_EVERY_STEPS = 10, 50
"""The steps at which compressed gradients are compared with exact ones: one exchange more."""
MAX_BUFFERED_NORMS = 100
"""Lengths of gradients that stay on the device before ranks put them together."""


class GradientExchange:
    """Sits between the replicas of a model, or of its stages on this rank, and looks."""

    def __init__(self, spec: RunSpec, compression: str = "none", rank: int = 1) -> None:
        self._kind, self._rank, self._every = compression, rank, spec.noise_every
        self._compressors: list[Compressor] = []
        self.share = 1.0
        """What every loss is to be multiplied by."""
        self._step = 0
        self._looking = self._noisy = False
        self._looks: list[BucketComparison] = []
        self._sent, self._whole = 0, 0
        self._errors: list[Tensor] = []
        self._lengths: list[Tensor] = []
        """Of each noisy step: |local gradient|² and |averaged gradient|²."""
        self._noise = Noise(spec.global_batch // spec.replicas, spec.global_batch)

    def join(self, model: DistributedDataParallel, group: dist.ProcessGroup) -> None:
        """Take over the exchange of a replica's gradients, if there is something to do."""
        if self._every or self._kind != "none":
            compressor = Compressor(self._kind, self._rank, group)
            self._compressors.append(compressor)
            self.share = compressor.share
            model.register_comm_hook(compressor, self._average)

    def _average(self, compressor: Compressor, bucket: GradBucket) -> Future[Tensor]:
        if self._looking:
            compared = compressor.group if self._kind != "none" else None
            self._looks.append(BucketComparison(bucket.buffer(), compared))
        return compressor.exchange(bucket)

    def begin(self, *, whole: bool = True) -> None:
        """Decide, alike on all ranks, whether the step that begins is looked at.

        One that is not ``whole`` has fewer samples than others, and its noise is not comparable.
        """
        self._step += 1
        self._noisy = whole and self._every > 0 and self._step % self._every == 0
        turn = self._step == FIRST_COMPARED_STEP or self._step % COMPARE_EVERY_STEPS == 0
        chosen = self._noisy or (turn and self._kind != "none")
        self._looking = chosen and bool(self._compressors)
        if self._looking:
            self._sent -= self._given()

    def end(self, scale: float = 1.0) -> None:
        """Keep what was seen, now that the gradients of a loss times ``scale`` are exchanged."""
        if not self._looking:
            return
        self._looking = False
        self._sent += self._given()
        self._whole += sum(look.bytes for look in self._looks)
        local, average, error = torch.stack([look.squares() for look in self._looks]).sum(0)
        if self._kind != "none":
            self._errors.append((error / average).sqrt())
        if self._noisy:
            lengths = torch.stack([local, average * self.share**2])
            self._lengths.append(lengths.double() / scale**2)
        self._looks = []
        if len(self._lengths) == MAX_BUFFERED_NORMS:
            self._settle()

    def _given(self) -> int:
        return sum(each.sent for each in self._compressors)

    def _settle(self) -> None:
        """Learn from the lengths so far, the local ones as their mean over replicas."""
        if self._lengths:
            group = self._compressors[0].group
            lengths = torch.stack(self._lengths) / group.size()
            dist.all_reduce(lengths, group=group)
            for local, average in lengths.tolist():
                self._noise.add(local, average)
            self._lengths = []

    def compression(self) -> dict[str, Any] | None:
        """Return the bytes of one step, with and without compression, and its mean error.

        That is the length of compressed − exact over that of the exact average.
        """
        if not self._errors:
            return None
        errors = torch.stack(self._errors)
        fine = errors[torch.isfinite(errors)]
        return {
            "kind": compression_label(self._kind, self._rank),
            "sent": self._sent // len(self._errors),
            "whole": self._whole // len(self._errors),
            "error": fine.mean().item() if len(fine) else None,
        }

    def noise(self) -> dict[str, Any] | None:
        """Return the gradient noise scale in samples; nothing where nobody looked for it.

        All ranks ask for it together.
        """
        if not self._every or not self._compressors:
            return None
        self._settle()
        return self._noise.scale()


class BucketComparison:
    """One bucket before its exchange, to be compared with what it holds afterwards."""

    def __init__(self, gradients: Tensor, group: dist.ProcessGroup | None) -> None:
        self.bytes = gradients.nbytes
        self._gradients = gradients
        self._local = _square(gradients)
        self._exact: Tensor | None = None
        if group:
            self._exact = gradients / group.size()
            self._work: Any = dist.all_reduce(self._exact, group=group, async_op=True)

    def squares(self) -> Tensor:
        """Return the squared lengths of local gradient, exact average, and error of the one got."""
        got = self._gradients
        if self._exact is None:
            return torch.stack([self._local, _square(got), torch.zeros_like(self._local)])
        self._work.wait()
        return torch.stack([self._local, _square(self._exact), _square(got - self._exact)])


def _square(flat: Tensor) -> Tensor:
    return torch.dot(flat, flat)  # A norm of floats is off by far more.
