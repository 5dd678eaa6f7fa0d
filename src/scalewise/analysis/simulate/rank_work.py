"""What one rank computes in a step, and when its gradients are ready to be exchanged."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from scalewise.errors import SpecError, shown
from scalewise.record.schema import DEVICE_PHASES
from scalewise.validate import check_integer, check_positive

FIRST_BUCKET_MB, BUCKET_MB = 1.0, 25.0
"""Default sizes in MiB of DDP's first bucket and of its other buckets."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """Gradients that are exchanged in one collective; under FSDP, the gradients of one block."""

    size: float
    """Bytes."""
    ready: float
    """Share (0 to 1) of the backward pass after which the gradients are ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One rank's step, without waiting for others: seconds by phase, and what it exchanges."""

    forward: float
    """Seconds of the forward pass of one micro-step."""
    backward: float
    """Seconds of the backward pass of one micro-step."""
    buckets: tuple[Bucket, ...] = ()
    """Gradient buckets, in the order in which they are ready."""
    optimizer: float = 0.0
    input: float = 0.0
    """Seconds of waiting for data."""
    other: float = 0.0
    accumulate: int = 1
    """Micro-steps per step. Gradients are exchanged in the last micro-step."""
    samples: float | None = None
    """Samples per rank and step."""

    def __post_init__(self) -> None:
        for name in DEVICE_PHASES:
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise SpecError(
                    f"{name} must be 0 or more seconds, got {shown(value)}", hint=f"{name} = 0.01"
                )
        if self.seconds <= 0:
            raise SpecError(
                "a step must take more than 0 seconds", hint="give forward and backward in seconds"
            )
        check_integer("accumulate", self.accumulate, minimum=1)
        if self.samples is not None:
            check_positive("samples", self.samples, example=32)
        shares = [0.0, *(bucket.ready for bucket in self.buckets), 1.0]
        if any(not later >= earlier for earlier, later in pairwise(shares)):  # Refuses NaN too.
            raise SpecError(
                f"buckets must be ready in order, from 0 to 1 of the backward, got {shares[1:-1]}",
                hint="give them in the order in which they are exchanged",
            )
        for bucket in self.buckets:
            check_positive("bucket size", bucket.size, example=25e6)

    @property
    def compute_seconds(self) -> float:
        """Seconds of forward, backward and optimizer in a step."""
        return self.accumulate * (self.forward + self.backward) + self.optimizer

    @property
    def seconds(self) -> float:
        """Seconds of the step: computation, waiting for data, other."""
        return self.compute_seconds + self.input + self.other

    @property
    def size(self) -> float:
        """Bytes of all gradients."""
        return sum(bucket.size for bucket in self.buckets)

    def scaled(self, factor: float) -> "Work":
        """Return the work with every phase taking ``factor`` times as long."""
        return replace(self, **{name: factor * getattr(self, name) for name in DEVICE_PHASES})


def make_buckets(
    gradients: Iterable[Bucket], first_mb: float = FIRST_BUCKET_MB, bucket_mb: float = BUCKET_MB
) -> tuple[Bucket, ...]:
    """Join single gradients into buckets as DDP does: a bucket ends when it reaches its limit.

    >>> make_buckets([Bucket(2**20, 0.1), Bucket(2**20, 0.5), Bucket(2**20, 1.0)])
    (Bucket(size=1048576.0, ready=0.1), Bucket(size=2097152.0, ready=1.0))
    """
    buckets: list[Bucket] = []
    size, ready, limit_mb = 0.0, 0.0, first_mb
    for gradient in gradients:
        size, ready = size + gradient.size, gradient.ready
        if size >= limit_mb * 2**20:
            buckets.append(Bucket(size, ready))
            size, limit_mb = 0.0, bucket_mb
    return (*buckets, Bucket(size, ready)) if size else tuple(buckets)


def even_buckets(
    size: float, limits_mb: Sequence[float] = (FIRST_BUCKET_MB, BUCKET_MB)
) -> tuple[Bucket, ...]:
    """Split ``size`` bytes of gradients, computed at a constant rate, into buckets.
    ``limits_mb`` are the largest sizes, in MiB, of the first bucket and of the other buckets.

    >>> even_buckets(2**20)
    (Bucket(size=1048576.0, ready=1.0),)
    """
    buckets: list[Bucket] = []
    total, limit_mb = 0.0, limits_mb[0]
    while size - total > 0:
        bucket_size = min(limit_mb * 2**20, size - total)
        total, limit_mb = total + bucket_size, limits_mb[-1]
        buckets.append(Bucket(bucket_size, min(1.0, total / size)))
    return tuple(buckets)
