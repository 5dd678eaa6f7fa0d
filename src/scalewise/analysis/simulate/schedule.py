"""Two queues of a device's tasks that run concurrently: computation and exchange (communication). A
task may wait for tasks of the other queue: gradients are exchanged after they are computed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from scalewise.errors import SpecError, shown


@dataclass(frozen=True, slots=True)
class Task:
    """A task of the computation or of the exchange queue."""

    seconds: float
    after: int = 0
    """How many tasks of the other queue, from its first, must be done before this task starts."""


@dataclass(frozen=True, slots=True)
class Contention:
    """How many times as long computation and exchange take while both run on a device."""

    compute: float = 1.0
    exchange: float = 1.0

    def __post_init__(self) -> None:
        for name in ("compute", "exchange"):
            value = getattr(self, name)
            if not 1 <= value < float("inf"):
                raise SpecError(
                    f"contention must be 1 or more, got {name} = {shown(value)}",
                    hint="1 is not slowed, 1.5 takes 1.5 times as long",
                )

    def at(self, devices: int) -> "Contention":
        """Return this contention: unlike ``Cores.at``, it is the same for any number of ranks."""
        return self


@dataclass(frozen=True, slots=True)
class Cores:
    """A node whose ranks each compute on one core; their exchange needs cores too."""

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
        # With fewer cores than ranks, the slow-down that exists without exchange is not counted.
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
        """Seconds of communication that is not hidden, because nothing is computed meanwhile."""
        return self.seconds - self.compute_seconds


def run_queues(
    compute: Sequence[Task], exchange: Sequence[Task], contention: Contention | None = None
) -> Timeline:
    """Return the timeline of both queues if each task starts as soon as it may.

    >>> run_queues([Task(3.0), Task(1.0, after=1)], [Task(2.0, after=1)]).exposed
    2.0
    """
    contention = contention or Contention()
    queues, slowdown = (compute, exchange), (contention.compute, contention.exchange)
    done = [0, 0]  # Tasks done of each queue. All lists below: [computation, exchange].
    remaining = [queue[0].seconds if queue else 0.0 for queue in queues]  # Of the current task.
    total, busy = 0.0, [0.0, 0.0]
    while done != [len(queue) for queue in queues]:
        active = [
            index
            for index, queue in enumerate(queues)
            if done[index] < len(queue) and queue[done[index]].after <= done[1 - index]
        ]
        if not active:
            raise SpecError(f"both queues wait for each other after {done[0]} and {done[1]} tasks")
        factors = {index: slowdown[index] if len(active) > 1 else 1.0 for index in active}
        # Advance to the end of the task that ends first: contention cannot change before it.
        ends = {index: remaining[index] * factors[index] for index in active}
        elapsed = min(ends.values())
        total += elapsed
        for index in active:
            busy[index] += elapsed
            remaining[index] -= elapsed / factors[index]
            if ends[index] <= elapsed:
                done[index] += 1
                queue = queues[index]
                remaining[index] = queue[done[index]].seconds if done[index] < len(queue) else 0.0
    return Timeline(total, busy[0], busy[1])
