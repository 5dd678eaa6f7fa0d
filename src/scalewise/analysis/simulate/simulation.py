"""The whole answer: what many devices would do, from the record of few and facts about links.

Nothing in it is an interval: a simulation is right where its mechanism is. What
was measured beyond the smallest run is held against it, and the factor between
the two is told.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from scalewise.analysis.measure import ScalingCurve
from scalewise.analysis.measure.window import steady_window
from scalewise.analysis.simulate.inputs import inputs
from scalewise.analysis.simulate.network import ALGORITHMS, Algorithm, Link, Network
from scalewise.analysis.simulate.rank_work import Work
from scalewise.analysis.simulate.schedule import Contention, Cores
from scalewise.analysis.simulate.simulated_step import Machine, Simulated, simulate
from scalewise.analysis.simulate.spread import Spread
from scalewise.analysis.simulate.strategy_schedules import Fsdp, Strategy, strategy_of
from scalewise.analysis.simulate.sweep import Measured, Sweep, measured
from scalewise.errors import NotEnoughData, SpecError
from scalewise.record.read import RunRecord
from scalewise.spec import Topology
from scalewise.validate import choice, whole

Links = Measured | Network
GIVEN = "--link-inside 200GB/s,5us --link-between 25GB/s,20us"


@dataclass(frozen=True, slots=True)
class Check:
    """A scale that was measured, beside its simulation."""

    topology: Topology
    simulated: float
    """Samples per second."""
    measured: float

    @property
    def factor(self) -> float:
        """How many times as long a real step took as the simulated one."""
        return self.simulated / self.measured


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """Steps on machines that nobody has measured, and what they rest on."""

    curve: ScalingCurve
    origin: Topology
    """Of the run that everything is simulated from."""
    run: str
    """Its id."""
    work: Work
    spread: Spread
    """Of its steps, in the place of ranks that nobody has seen."""
    strategy: str
    network: Network
    per_node: int | None
    alone: Simulated
    """The step of a single device: what efficiency is held against."""
    points: tuple[Simulated, ...]
    checks: tuple[Check, ...] = ()
    """Scales that were measured too, from few devices to many."""
    notes: tuple[str, ...] = ()
    """What was not recorded and is assumed, or could not be held against a measurement."""

    def efficiency(self, point: Simulated) -> float:
        """Return the step of a device alone over this one: both have the same samples."""
        return self.alone.step / point.step

    @property
    def factor(self) -> float | None:
        """How many times as long a step took as simulated, on the largest that was measured."""
        return self.checks[-1].factor if self.checks else None

    def anchored(self, point: Simulated) -> float | None:
        """Return the throughput with that factor on it; nothing inside what was measured."""
        if not self.checks or point.throughput is None:
            return None
        beyond = point.topology.world > self.checks[-1].topology.world
        return point.throughput / self.checks[-1].factor if beyond else None


def exchange(
    sweeps: Sequence[Sweep] = (),
    *,
    inside: Link | None = None,
    between: Link | None = None,
    per_node: int | None = None,
    algorithm: str | None = None,
) -> Links:
    """Return how devices exchange: as it was timed, by the links that are given, or both.

    Gloo goes in a ring; NCCL takes the quickest way, and so do links that are only
    given. Nodes of one device need no link inside.
    """
    if algorithm is not None:
        choice("algorithm", algorithm, ALGORITHMS)
    usual = "ring" if any(each.backend == "gloo" for each in sweeps) else "quickest"
    way = cast(Algorithm, algorithm or usual)
    if sweeps:
        return measured(sweeps, way, inside=inside, between=between)
    nearest = inside or between
    if nearest is None:
        raise SpecError(
            "a simulation needs the links between devices",
            hint=f"--collectives runs/collectives.json, or {GIVEN}",
        )
    if inside is None and per_node != 1:
        raise SpecError(
            "the link inside a node is not known",
            hint="--link-inside 200GB/s,5us; or --devices-per-node 1, where it has one device",
        )
    return Network(nearest, between, way)


def simulation(
    curve: ScalingCurve,
    records: Sequence[RunRecord],
    at: Iterable[int],
    exchange: Links,
    *,
    per_node: int | None = None,
    gradients: float | None = None,
) -> Simulation:
    """Return a step on each of these numbers of devices, from the smallest of the runs.

    ``per_node`` are the devices of a node there. ``gradients`` are their bytes, where
    the run has not recorded them.
    """
    _refuse_strong(curve)
    record = _smallest(records)
    way = _way(record)
    seen = inputs(record, gradients)
    per_node = per_node or curve.devices_per_node or _swept(exchange)
    places = [_place(count, per_node, exchange) for count in sorted(set(at))]
    if not seen.work.buckets:
        raise NotEnoughData(
            f"{record.folder} does not tell how many bytes of gradients it exchanges",
            hint="give them: --gradients 100MB, four bytes for each parameter in fp32",
        )
    machine = _machine(record, exchange, seen.spread)
    alone, *points = simulate(seen.work, [Topology(1, 1), *places], machine, way)
    checks, missed = _checks(curve, records, seen.work, machine, way)
    return Simulation(
        curve=curve,
        origin=record.spec.topology,
        run=record.spec.id,
        work=seen.work,
        spread=seen.spread,
        strategy=type(way).__name__.lower(),
        network=exchange.network if isinstance(exchange, Measured) else exchange,
        per_node=per_node,
        alone=alone,
        points=tuple(points),
        checks=checks,
        notes=(*seen.notes, *missed),
    )


def _refuse_strong(curve: ScalingCurve) -> None:
    if curve.scaling == "strong":
        raise SpecError(
            f"a simulation keeps the batch of a device, and {curve.name} keeps the global batch",
            hint="predict without --simulate, or study the batch that a device has on many",
        )


def _smallest(records: Sequence[RunRecord]) -> RunRecord:
    """Return the run on the fewest devices: of its repeats, the one with the middle step."""
    least = min(record.spec.topology.world for record in records)
    repeats = [record for record in records if record.spec.topology.world == least]
    repeats.sort(key=lambda record: (window := steady_window(record)).seconds / window.steps)
    return repeats[(len(repeats) - 1) // 2]


def _way(record: RunRecord) -> Strategy:
    """Return how the run spreads its model; refuse one that holds only a part of it."""
    spec = record.spec
    if spec.strategy == "pipeline" or spec.degrees.degree > 1:
        raise SpecError(
            f"the smallest run, {spec.topology} with {spec.strategy}, does not tell what a whole "
            "model takes",
            hint="simulate from a run with ddp or fsdp on one device",
        )
    sharded = record.ranks[0].notes.facts.get("sharded")
    return Fsdp() if sharded else strategy_of(spec)


def _machine(record: RunRecord, exchange: Links, spread: Spread) -> Machine:
    """Return what the ranks run on; on processors, an exchange takes cores from the others."""
    engine = record.environment.get("engine") or {}
    cores, busy = record.environment.get("cores"), exchange.busy
    alone = engine.get("devices") == ["cpu"] and engine.get("threads") == 1
    crowded = Cores(cores, busy) if alone and cores and busy is not None else Contention()
    return Machine(exchange=exchange, spread=spread, contention=crowded)


def _swept(exchange: Links) -> int | None:
    """Return the devices of a node in sweeps over several."""
    sweeps = exchange.sweeps if isinstance(exchange, Measured) else ()
    return next((each.topology.devices for each in sweeps if each.topology.nodes > 1), None)


def _place(count: int, per_node: int | None, exchange: Links) -> Topology:
    """Return so many devices in full nodes, or inside one."""
    whole("a number of devices", count, least=1)
    sweeps = exchange.sweeps if isinstance(exchange, Measured) else ()
    seen = [each.topology.devices for each in sweeps if each.topology.nodes == 1]
    inside = max(seen, default=1) if per_node is None else per_node
    if count <= inside:
        return Topology(1, count)
    if per_node is None:
        raise SpecError(
            f"how many devices a node has is not known, so {count} have no topology",
            hint="--devices-per-node 8",
        )
    if count % per_node:
        near = count // per_node * per_node
        raise SpecError(
            f"{count} devices do not fill nodes of {per_node}",
            hint=f"for example --at {near},{near + per_node}",
        )
    return Topology(count // per_node, per_node)


def _checks(
    curve: ScalingCurve,
    records: Sequence[RunRecord],
    work: Work,
    machine: Machine,
    way: Strategy,
) -> tuple[tuple[Check, ...], tuple[str, ...]]:
    """Hold every scale of several devices that was measured against its simulation."""
    checks, missed = [], []
    places = {record.spec.topology for record in records if record.spec.topology.world > 1}
    rates = {(point.nodes, point.devices): point.throughput for point in curve.points}
    for place in sorted(places, key=lambda place: (place.world, place.nodes)):
        rate = rates.get((place.nodes, place.world))
        try:
            (found,) = simulate(work, [place], machine, way)
        except NotEnoughData as problem:
            missed.append(f"{place} was measured and is not held against a simulation: {problem}")
            continue
        if rate and found.throughput:
            checks.append(Check(place, found.throughput, rate.value))
    return tuple(checks), tuple(missed)
