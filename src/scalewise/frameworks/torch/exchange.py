"""What the gradients of a replica go through on their way to the others.

Almost every step they are only averaged, compressed if the run says so. At a few
steps they are looked at too: what compression saves, and how far it is off.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import GradBucket  # type: ignore[attr-defined]
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from scalewise.frameworks.torch.compression import Compressor, average, flat, words

FIRST_LOOK, LOOK_EVERY = 10, 50
"""The steps at which compressed gradients are compared with exact ones: one exchange more."""


class Exchange:
    """Sits between the replicas of a model, or of its stages on this rank, and looks."""

    def __init__(self, compression: str, rank: int) -> None:
        self._kind, self._rank = compression, rank
        self._compressors: list[Compressor] = []
        self._step = 0
        self._looking = False
        self._looks: list[Look] = []
        self._sent, self._whole = 0, 0
        self._errors: list[Tensor] = []

    def join(self, model: DistributedDataParallel, group: dist.ProcessGroup) -> None:
        """Take over the exchange of a replica's gradients, if there is something to do."""
        if self._kind != "none":
            compressor = Compressor(self._kind, self._rank, group)
            self._compressors.append(compressor)
            model.register_comm_hook(compressor, self._average)

    def _average(self, compressor: Compressor, bucket: GradBucket) -> Future[Tensor]:
        if self._looking:
            self._looks.append(Look(bucket, compressor.group))
        return compressor.average(bucket)

    def begin(self) -> None:
        """Decide, alike on all ranks, whether the step that begins is looked at."""
        self._step += 1
        chosen = self._step == FIRST_LOOK or self._step % LOOK_EVERY == 0
        self._looking = chosen and bool(self._compressors)
        self._sent -= self._given() if self._looking else 0

    def end(self) -> None:
        """Keep what was seen, now that the gradients are exchanged."""
        if not self._looking:
            return
        self._looking = False
        self._sent += self._given()
        self._whole += sum(look.bytes for look in self._looks)
        squares = torch.stack([look.squares() for look in self._looks]).sum(0)
        self._errors.append((squares[0] / squares[1]).sqrt())
        self._looks = []

    def _given(self) -> int:
        return sum(each.sent for each in self._compressors)

    def compression(self) -> dict[str, Any] | None:
        """Return the bytes of one step, with and without compression, and its mean error.

        That is the length of compressed − exact over that of the exact average.
        """
        if not self._errors:
            return None
        errors = torch.stack(self._errors)
        fine = errors[torch.isfinite(errors)]
        return {
            "kind": words(self._kind, self._rank),
            "sent": self._sent // len(self._errors),
            "whole": self._whole // len(self._errors),
            "error": fine.mean().item() if len(fine) else None,
        }


class Look:
    """One bucket before its exchange, to be compared with what comes back."""

    def __init__(self, bucket: GradBucket, group: dist.ProcessGroup) -> None:
        self._parameters = bucket.parameters()
        self._exact = flat(bucket.gradients())
        self._work = average(self._exact, group)
        self.bytes = bucket.buffer().nbytes

    def squares(self) -> Tensor:
        """Return the squared length of the error, and of the exact average."""
        self._work.wait()
        got = flat([each.grad for each in self._parameters if each.grad is not None])
        error = torch.linalg.vector_norm(got - self._exact)
        return torch.stack([error, torch.linalg.vector_norm(self._exact)]).square()
