"""Two queues that run concurrently: what a device computes, and what it communicates. A task may
wait for tasks of the other queue: an exchange starts after its gradients are computed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from scalewise.errors import SpecError


@dataclass(frozen=True, slots=True)
class Task:
    """A task of one queue."""

    seconds: float
    after: int = 0
    """The first ``after`` tasks of the other queue must be done before this one starts."""


@dataclass(frozen=True, slots=True)
class Contention:
    """How many times as long computation and exchange take while both run."""

    compute: float = 1.0
    exchange: float = 1.0

    def __post_init__(self) -> None:
        for name in ("compute", "exchange"):
            value = getattr(self, name)
            if not 1 <= value < float("inf"):
                raise SpecError(
                    f"contention must be 1 or more, got {name} = {value!r}",
                    hint="give how many times longer it takes, from 1",
                )

    def at(self, devices: int) -> "Contention":
        """Return the contention on a node with ``devices`` ranks: the same for any number."""
        return self


@dataclass(frozen=True, slots=True)
class Cores:
    """Contention for the cores of a node between its ranks' computation and their exchange."""

    count: int
    busy_cores: float
    """Cores that one rank's exchange keeps busy while it runs."""

    def __post_init__(self) -> None:
        if self.count < 1 or not 0 <= self.busy_cores < float("inf"):
            raise SpecError(
                f"a node has at least one core, and an exchange keeps 0 or more of them busy, "
                f"got {self}",
                hint="for example Cores(count=16, busy_cores=0.8)",
            )

    def at(self, devices: int) -> Contention:
        """Return the slow-down if ``devices`` ranks need more cores than the node has.

        >>> Cores(count=16, busy_cores=0.5).at(16), Cores(count=16, busy_cores=0.5).at(8)
        (Contention(compute=1.5, exchange=1.5), Contention(compute=1.0, exchange=1.0))
        """
        # With fewer cores than ranks, computation is slow without an exchange too: not counted.
        factor = max(1.0, devices * (1 + self.busy_cores) / max(self.count, devices))
        return Contention(factor, factor)


@dataclass(frozen=True, slots=True)
class Timeline:
    """Total seconds of two queues, and how long each was busy."""

    seconds: float
    compute_seconds: float
    exchange_seconds: float

    @property
    def exposed(self) -> float:
        """Seconds without computation: communication that is not hidden."""
        return self.seconds - self.compute_seconds


def run_queues(
    compute: Sequence[Task], exchange: Sequence[Task], contention: Contention | None = None
) -> Timeline:
    """Run both queues, each task as soon as it may start.

    >>> run_queues([Task(3.0), Task(1.0, after=1)], [Task(2.0, after=1)]).exposed
    2.0
    """
    contention = contention or Contention()
    queues, slowdown = (compute, exchange), (contention.compute, contention.exchange)
    done = [0, 0]  # Of computation and of exchange, as are all pairs below.
    remaining = [queue[0].seconds if queue else 0.0 for queue in queues]
    total, busy = 0.0, [0.0, 0.0]
    while done != [len(queue) for queue in queues]:
        active = [
            side
            for side, queue in enumerate(queues)
            if done[side] < len(queue) and queue[done[side]].after <= done[1 - side]
        ]
        if not active:
            raise SpecError(f"both queues wait for each other after {done[0]} and {done[1]} tasks")
        factors = {side: slowdown[side] if len(active) > 1 else 1.0 for side in active}
        # Advance to the end of the task that ends first: contention changes only there.
        ends = {side: remaining[side] * factors[side] for side in active}
        span = min(ends.values())
        total += span
        for side in active:
            busy[side] += span
            remaining[side] -= span / factors[side]
            if ends[side] <= span:
                done[side] += 1
                queue = queues[side]
                remaining[side] = queue[done[side]].seconds if done[side] < len(queue) else 0.0
    return Timeline(total, busy[0], busy[1])
