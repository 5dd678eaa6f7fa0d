"""Two queues beside each other: what a device computes, and what goes over its links.

Each queue does its tasks one after another. A task may have to wait until so
many of the other queue are done: gradients before their exchange, weights before
the layer that uses them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from scalewise.errors import SpecError


@dataclass(frozen=True, slots=True)
class Task:
    """Something that takes time once it may begin."""

    seconds: float
    after: int = 0
    """How many tasks of the other queue have to be done first."""


@dataclass(frozen=True, slots=True)
class Contention:
    """How many times longer computing and exchanging take while both go on at once."""

    compute: float = 1.0
    exchange: float = 1.0

    def __post_init__(self) -> None:
        for name in ("compute", "exchange"):
            value = getattr(self, name)
            if not 1 <= value < float("inf"):
                raise SpecError(
                    f"contention makes nothing faster, got {name} = {value!r}",
                    hint="give how many times longer it takes, from 1",
                )

    def at(self, devices: int) -> "Contention":
        """Return the contention on a node with so many ranks: the same on every one."""
        return self


@dataclass(frozen=True, slots=True)
class Cores:
    """Ranks of a node share its cores, and exchanging needs them too."""

    count: int
    busy: float
    """Cores that one rank's exchange keeps busy while it goes on."""

    def __post_init__(self) -> None:
        if self.count < 1 or not 0 <= self.busy < float("inf"):
            raise SpecError(
                f"a node has at least one core, and an exchange keeps 0 or more of them busy, "
                f"got {self}",
                hint="for example Cores(count=16, busy=0.8)",
            )

    def at(self, devices: int) -> Contention:
        """Return what both get of a core while more is wanted than there is.

        >>> Cores(count=16, busy=0.5).at(16), Cores(count=16, busy=0.5).at(8)
        (Contention(compute=1.5, exchange=1.5), Contention(compute=1.0, exchange=1.0))
        """
        wanted = max(1.0, devices * (1 + self.busy) / max(self.count, devices))
        return Contention(wanted, wanted)


@dataclass(frozen=True, slots=True)
class Played:
    """How two queues went."""

    seconds: float
    """Until both were done."""
    computing: float
    """Of these, with something being computed."""
    exchanging: float
    """Of these, with something on its way."""

    @property
    def exposed(self) -> float:
        """Seconds in which nothing was computed: communication that nothing hides."""
        return self.seconds - self.computing


def play(
    compute: Sequence[Task], exchange: Sequence[Task], contention: Contention | None = None
) -> Played:
    """Do both queues, each task as soon as it may begin.

    >>> play([Task(3.0), Task(1.0, after=1)], [Task(2.0, after=1)]).exposed
    2.0
    """
    slow = contention or Contention()
    queues, slower = (compute, exchange), (slow.compute, slow.exchange)
    done = [0, 0]
    left = [queue[0].seconds if queue else 0.0 for queue in queues]
    total, busy = 0.0, [0.0, 0.0]
    while done != [len(queue) for queue in queues]:
        active = [
            side
            for side, queue in enumerate(queues)
            if done[side] < len(queue) and queue[done[side]].after <= done[1 - side]
        ]
        if not active:
            raise SpecError(f"both queues wait for each other after {done[0]} and {done[1]} tasks")
        ends = {side: left[side] * (slower[side] if len(active) > 1 else 1.0) for side in active}
        span = min(ends.values())
        total += span
        for side in active:
            busy[side] += span
            left[side] -= span / (slower[side] if len(active) > 1 else 1.0)
            if ends[side] <= span:
                done[side] += 1
                queue = queues[side]
                left[side] = queue[done[side]].seconds if done[side] < len(queue) else 0.0
    return Played(total, busy[0], busy[1])
