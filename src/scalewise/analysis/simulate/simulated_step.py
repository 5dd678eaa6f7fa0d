"""One step on any number of devices, from what one device does and what its links take.

Devices are alike: one is played, and every other does the same. So 16,384 of them
take no longer to simulate than two. What is not alike is the spread of ranks: the
slowest one is played, slower by as much as the slowest of so many is expected to
be, and taken to be the last at every bucket.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from scalewise.analysis.simulate.network import Exchange
from scalewise.analysis.simulate.rank_work import Work
from scalewise.analysis.simulate.schedule import Contention, Cores, Played, play
from scalewise.analysis.simulate.spread import Spread
from scalewise.analysis.simulate.strategy_schedules import Ddp, Strategy
from scalewise.errors import SpecError
from scalewise.spec import Topology

PHASES = (
    "input", "forward", "backward", "optimizer", "other", "sharing", "balance", "contention",
    "bubble", "exchange",
)  # fmt: skip
"""What a step is made of: what a device does alone, then what others add to it."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What the ranks run on, and how they disturb each other."""

    exchange: Exchange
    spread: Spread = field(default_factory=Spread)
    contention: Contention | Cores = field(default_factory=Contention)
    """Between computing and exchanging on one device."""
    sharing: Mapping[int, float] = field(default_factory=dict)
    """How many times longer a step takes on so many devices of a node that exchange nothing:
    they share its memory. Between two counts it is interpolated, beyond the last it stays."""

    def __post_init__(self) -> None:
        for devices, factor in self.sharing.items():
            if devices < 1 or not 0 < factor < math.inf:
                raise SpecError(
                    f"{devices!r} devices that take {factor!r} times as long mean nothing",
                    hint="for example sharing = {1: 1.0, 8: 1.3}",
                )

    def slower(self, devices: int) -> float:
        """Return how many times longer a step takes beside the others of a node."""
        if not self.sharing:
            return 1.0
        known = sorted({1: 1.0, **self.sharing}.items())
        counts, factors = zip(*known)
        return float(np.interp(devices, counts, factors))

    def reach(self, topology: Topology) -> str:
        """Say what is known of others on this topology, and what is not."""
        if topology.world == 1:
            return "a device alone has nobody to exchange with"
        told, most = self.exchange.reach(topology), max(self.sharing, default=1)
        if topology.devices <= most:
            return told
        seen = f"was seen up to {most} of them" if self.sharing else "is not known"
        return f"{told}; how the devices of a node slow each other {seen}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """One step on one topology."""

    topology: Topology
    step: float
    """Seconds."""
    throughput: float | None
    """Samples per second of all devices."""
    phases: Mapping[str, float]
    """Seconds of each of ``PHASES``; they sum to the step."""
    communication: float
    """Seconds with something on its way, hidden or not."""
    reach: str
    """What the seconds of others rest on."""

    @property
    def exposed(self) -> float:
        """Seconds that a device only waits for communication, the bubble not counted."""
        return self.phases["exchange"]


def simulate(
    work: Work,
    topologies: Iterable[Topology],
    machine: Machine,
    strategy: Strategy | None = None,
) -> tuple[Simulated, ...]:
    """Return one step of ``work`` on each topology; gradients are all-reduced if nothing is said.

    The batch of a device stays the same: weak scaling.
    """
    way = strategy or Ddp()
    return tuple(_simulated(work, topology, machine, way) for topology in topologies)


def _simulated(work: Work, topology: Topology, machine: Machine, way: Strategy) -> Simulated:
    part = way.part(work, topology)
    shared = machine.slower(topology.devices)
    late = machine.spread.slowest(topology.world)
    even, bubble = _played(part.times(shared), topology, machine, way)
    slow, longer = _played(part.times(shared * late), topology, machine, way)
    fixed = part.input + part.other
    step = slow.seconds + longer + shared * late * fixed
    samples = work.samples and work.samples * way.replicas(topology)
    return Simulated(
        topology=topology,
        step=step,
        throughput=samples / step if samples else None,
        phases={
            "input": part.input,
            "forward": part.accumulate * part.forward,
            "backward": part.accumulate * part.backward,
            "optimizer": part.optimizer,
            "other": part.other,
            "sharing": (shared - 1) * part.seconds,
            "balance": step - (even.seconds + bubble + shared * fixed),
            "contention": even.computing - shared * part.computing,
            "bubble": bubble,
            "exchange": even.exposed,
        },
        communication=even.exchanging,
        reach=machine.reach(topology),
    )


def _played(
    part: Work, topology: Topology, machine: Machine, way: Strategy
) -> tuple[Played, float]:
    """Return how a step goes, and its bubble."""
    queues = way.queues(part, machine.exchange, topology)
    contention = machine.contention.at(topology.devices)
    return play(queues.compute, queues.exchange, contention), queues.bubble
