"""One step on any number of devices, from the work of one device and its communication.

All devices do the same work, so only two are simulated: one of mean speed, and the slowest, for
which the others wait. The slowest is assumed to be slower by the same factor in the whole step.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from scalewise.analysis.simulate.rank_work import Work
from scalewise.analysis.simulate.schedule import Contention, Cores, Timeline, run_queues
from scalewise.analysis.simulate.spread import Spread
from scalewise.analysis.simulate.strategy_schedules import Ddp, Strategy
from scalewise.analysis.simulate.sweep import Exchange
from scalewise.errors import SpecError, shown
from scalewise.record.schema import DEVICE_PHASES
from scalewise.spec import Topology

PHASES = (*DEVICE_PHASES, "sharing", "balance", "contention", "bubble", "exchange")
"""Parts of a step: first those of a device alone, then the time that other devices add to them.
sharing: devices of a node share its memory; balance: waiting for the slowest; contention: slower
computation during an exchange; bubble: idle pipeline stages; exchange: communication not hidden.
"""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What the ranks run on, and how they slow each other."""

    exchange: Exchange
    spread: Spread = field(default_factory=Spread)
    contention: Contention | Cores = field(default_factory=Contention)
    """Slow-down while computation and exchange run at the same time."""
    sharing: Mapping[int, float] = field(default_factory=dict)
    """How many times as long a step without exchange takes if a node's memory is shared by this
    many devices (the key). Interpolated between the keys, constant beyond the largest.
    """

    def __post_init__(self) -> None:
        for devices, factor in self.sharing.items():
            if devices < 1 or not 0 < factor < math.inf:
                raise SpecError(
                    f"sharing maps 1 or more devices to a factor above 0, got "
                    f"{shown(devices)}: {shown(factor)}",
                    hint="for example sharing = {1: 1.0, 8: 1.3}",
                )

    def sharing_factor(self, devices: int) -> float:
        """Return how many times as long a step takes if this many devices share a node."""
        if not self.sharing:
            return 1.0
        counts, factors = zip(*sorted({1: 1.0, **self.sharing}.items()))
        return float(np.interp(devices, counts, factors))


@dataclass(frozen=True, slots=True)
class Reach:
    """The scales at which effects of other devices were measured; beyond them they are modelled."""

    timed: tuple[Topology, ...]
    """Topologies on which communication was timed; empty if the user gave links instead."""
    shared_devices: int
    """The largest key of ``Machine.sharing``; 0 if the effect of sharing is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedStep:
    """One step on one topology."""

    topology: Topology
    step: float
    """Seconds of the step."""
    throughput: float | None
    """Samples per second of all devices."""
    phases: Mapping[str, float]
    """Seconds of each of ``PHASES``; they sum to the step."""
    communication: float
    """Seconds of communication, hidden or not."""
    reach: Reach

    @property
    def exposed(self) -> float:
        """Seconds of communication not hidden by computation. The bubble is not included."""
        return self.phases["exchange"]


def simulate(
    work: Work, topologies: Iterable[Topology], machine: Machine, strategy: Strategy | None = None
) -> tuple[SimulatedStep, ...]:
    """Return a step on each topology. ``work`` is a whole model's; the default strategy is ddp."""
    strategy = strategy or Ddp()
    timed = tuple(sweep.topology for sweep in machine.exchange.sweeps)
    reach = Reach(timed, max(machine.sharing, default=0))
    steps = []
    for topology in topologies:
        part = strategy.part(work, topology)
        sharing = machine.sharing_factor(topology.devices)
        slowness = machine.spread.slowest(topology.world)
        mean, bubble = _run_step(part.scaled(sharing), topology, machine, strategy)
        slow_part = part.scaled(sharing * slowness)
        slowest, slowest_bubble = _run_step(slow_part, topology, machine, strategy)
        not_queued = part.input + part.other  # Neither queue contains these seconds.
        step = slowest.seconds + slowest_bubble + sharing * slowness * not_queued
        samples = work.samples and work.samples * strategy.replicas(topology)
        simulated = SimulatedStep(
            topology=topology,
            step=step,
            throughput=samples / step if samples else None,
            phases={
                "input": part.input,
                "forward": part.accumulate * part.forward,
                "backward": part.accumulate * part.backward,
                "optimizer": part.optimizer,
                "other": part.other,
                "sharing": (sharing - 1) * part.seconds,
                "balance": step - (mean.seconds + bubble + sharing * not_queued),
                "contention": mean.compute_seconds - sharing * part.compute_seconds,
                "bubble": bubble,
                "exchange": mean.exposed,
            },
            communication=mean.exchange_seconds,
            reach=reach,
        )
        steps.append(simulated)
    return tuple(steps)


def _run_step(
    part: Work, topology: Topology, machine: Machine, strategy: Strategy
) -> tuple[Timeline, float]:
    """Return the timeline of a step of one device, and the seconds of its pipeline bubble."""
    queues = strategy.queues(part, machine.exchange, topology)
    contention = machine.contention.at(topology.devices)
    return run_queues(queues.compute, queues.exchange, contention), queues.bubble
