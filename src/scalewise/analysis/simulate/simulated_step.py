"""One step on any number of devices, from the work of one device and its communication.

All devices do the same work, so two are simulated: a mean one, and the slowest, for which all wait.
The slowest is assumed to be late by the same factor in every part of the step.
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
from scalewise.errors import SpecError
from scalewise.record.schema import DEVICE_PHASES
from scalewise.spec import Topology

PHASES = (*DEVICE_PHASES, "sharing", "balance", "contention", "bubble", "exchange")
"""Parts of a step: what a device does by itself, then what other devices add. Sharing: slower by
shared memory; balance: waiting for the slowest; contention: slower computation during an exchange;
bubble: idle pipeline stages; exchange: communication that is not hidden.
"""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What the ranks run on, and how they slow each other."""

    exchange: Exchange
    spread: Spread = field(default_factory=Spread)
    contention: Contention | Cores = field(default_factory=Contention)
    """Between computation and exchange on one device."""
    sharing: Mapping[int, float] = field(default_factory=dict)
    """By number of devices in a node, which share its memory: how many times as long a step without
    exchange takes as on one. Interpolated between counts, constant beyond the last.
    """

    def __post_init__(self) -> None:
        for devices, factor in self.sharing.items():
            if devices < 1 or not 0 < factor < math.inf:
                raise SpecError(
                    f"sharing maps 1 or more devices to a factor above 0, got "
                    f"{devices!r}: {factor!r}",
                    hint="for example sharing = {1: 1.0, 8: 1.3}",
                )

    def sharing_factor(self, devices: int) -> float:
        """Return how many times as long a step takes on a node with this many devices."""
        if not self.sharing:
            return 1.0
        counts, factors = zip(*sorted({1: 1.0, **self.sharing}.items()))
        return float(np.interp(devices, counts, factors))


@dataclass(frozen=True, slots=True)
class Reach:
    """Up to where the effect of other devices was measured."""

    timed: tuple[Topology, ...]
    """Topologies on which communication was timed; none if links were given instead."""
    shared_devices: int
    """The most devices per node whose ``Machine.sharing`` was measured; 0 if it is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedStep:
    """One step on one topology."""

    topology: Topology
    step: float
    """Seconds."""
    throughput: float | None
    """Samples per second of all devices."""
    phases: Mapping[str, float]
    """Seconds of each of ``PHASES``; they sum to the step."""
    communication: float
    """Seconds of communication, hidden or not."""
    reach: Reach

    @property
    def exposed(self) -> float:
        """Seconds of communication that computation does not hide, without the bubble."""
        return self.phases["exchange"]


def simulate(
    work: Work, topologies: Iterable[Topology], machine: Machine, strategy: Strategy | None = None
) -> tuple[SimulatedStep, ...]:
    """Return a step of ``work`` per device on each topology; the default strategy is ddp."""
    strategy = strategy or Ddp()
    timed = tuple(sweep.topology for sweep in machine.exchange.sweeps)
    reach = Reach(timed, max(machine.sharing, default=0))
    steps = []
    for topology in topologies:
        part = strategy.part(work, topology)
        sharing = machine.sharing_factor(topology.devices)
        lateness = machine.spread.slowest(topology.world)
        mean, bubble = _run(part.scaled(sharing), topology, machine, strategy)
        slowest, slowest_bubble = _run(part.scaled(sharing * lateness), topology, machine, strategy)
        not_queued = part.input + part.other  # Seconds outside of both queues.
        step = slowest.seconds + slowest_bubble + sharing * lateness * not_queued
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


def _run(
    part: Work, topology: Topology, machine: Machine, strategy: Strategy
) -> tuple[Timeline, float]:
    """Return the timeline of a step, and the seconds of its bubble."""
    queues = strategy.queues(part, machine.exchange, topology)
    contention = machine.contention.at(topology.devices)
    return run_queues(queues.compute, queues.exchange, contention), queues.bubble
