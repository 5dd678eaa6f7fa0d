"""What one rank computes in a step, and when its gradients are there to be exchanged."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from scalewise.errors import SpecError
from scalewise.validate import positive, whole

FIRST_MB, BUCKET_MB = 1.0, 25.0
"""MiB of DDP's first bucket and of the others, where nobody says otherwise."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """Gradients that are exchanged at once, or with ``fsdp`` a block."""

    size: float
    """Bytes."""
    ready: float
    """After which share of the backward they are there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One rank's step, with nobody to wait for. Seconds."""

    forward: float
    """Of one micro-step."""
    backward: float
    """Of one micro-step."""
    buckets: tuple[Bucket, ...] = ()
    """In the order in which they are ready."""
    optimizer: float = 0.0
    input: float = 0.0
    """Waiting for data."""
    other: float = 0.0
    accumulate: int = 1
    """Micro-steps; gradients are exchanged in the last."""
    samples: float | None = None
    """Of one rank in a step."""

    def __post_init__(self) -> None:
        for name in ("forward", "backward", "optimizer", "input", "other"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise SpecError(
                    f"{name} must be 0 or more seconds, got {value!r}", hint=f"{name} = 0.01"
                )
        if self.seconds <= 0:
            raise SpecError("a step takes some time", hint="give forward and backward in seconds")
        whole("accumulate", self.accumulate, least=1)
        if self.samples is not None:
            positive("samples", self.samples, example=32)
        self._refuse_disorder()

    def _refuse_disorder(self) -> None:
        shares = [0.0, *(bucket.ready for bucket in self.buckets), 1.0]
        if any(not later >= earlier for earlier, later in pairwise(shares)):
            raise SpecError(
                f"buckets are ready one after another, from 0 to 1 of the backward, "
                f"got {shares[1:-1]}",
                hint="give them in the order in which they are exchanged",
            )
        for bucket in self.buckets:
            positive("bucket size", bucket.size, example=25e6)

    @property
    def computing(self) -> float:
        """Seconds of forward, backward and optimizer in a step."""
        return self.accumulate * (self.forward + self.backward) + self.optimizer

    @property
    def seconds(self) -> float:
        """Seconds of the whole step."""
        return self.computing + self.input + self.other

    @property
    def size(self) -> float:
        """Bytes of all gradients."""
        return sum(bucket.size for bucket in self.buckets)

    def times(self, factor: float) -> "Work":
        """Return the same work on a device that takes ``factor`` times as long."""
        parts = ("forward", "backward", "optimizer", "input", "other")
        return replace(self, **{name: factor * getattr(self, name) for name in parts})


def bundled(
    gradients: Iterable[Bucket], first_mb: float = FIRST_MB, bucket_mb: float = BUCKET_MB
) -> tuple[Bucket, ...]:
    """Return gradients in buckets as DDP makes them: one is closed when it has reached its MiB.

    >>> bundled([Bucket(2**20, 0.1), Bucket(2**20, 0.5), Bucket(2**20, 1.0)])
    (Bucket(size=1048576.0, ready=0.1), Bucket(size=2097152.0, ready=1.0))
    """
    found: list[Bucket] = []
    held, ready, most = 0.0, 0.0, first_mb
    for each in gradients:
        held, ready = held + each.size, each.ready
        if held >= most * 2**20:
            found.append(Bucket(held, ready))
            held, most = 0.0, bucket_mb
    return (*found, Bucket(held, ready)) if held else tuple(found)


def evenly(size: float, caps: Sequence[float] = (FIRST_MB, BUCKET_MB)) -> tuple[Bucket, ...]:
    """Return buckets of ``size`` bytes of gradients that come at an even pace.

    >>> evenly(2**20)
    (Bucket(size=1048576.0, ready=1.0),)
    """
    found: list[Bucket] = []
    done, most = 0.0, caps[0]
    while size - done > 0:
        piece = min(most * 2**20, size - done)
        done, most = done + piece, caps[-1]
        found.append(Bucket(piece, min(1.0, done / size)))
    return tuple(found)
