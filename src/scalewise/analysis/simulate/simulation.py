"""Simulate a step on many devices, from the record of a run on few devices and the speed of links.

There is no interval. Instead, each measured topology of several devices is simulated too.
``Check.factor`` is its measured step time divided by its simulated step time.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from scalewise.analysis.measure import ScalingCurve
from scalewise.analysis.measure.window import steady_window
from scalewise.analysis.simulate.inputs import Note, load_inputs
from scalewise.analysis.simulate.network import ALGORITHMS, Algorithm, Link, Network
from scalewise.analysis.simulate.rank_work import Work
from scalewise.analysis.simulate.schedule import Contention, Cores
from scalewise.analysis.simulate.simulated_step import Machine, SimulatedStep, simulate
from scalewise.analysis.simulate.spread import Spread
from scalewise.analysis.simulate.strategy_schedules import Fsdp, Strategy, strategy_from_spec
from scalewise.analysis.simulate.sweep import Exchange, MeasuredExchange, Sweep, fit_exchange
from scalewise.errors import NotEnoughData, SpecError, parameter
from scalewise.record.read import RunRecord
from scalewise.spec import Topology
from scalewise.validate import check_choice, check_integer


@dataclass(frozen=True, slots=True)
class Check:
    """The measured and the simulated throughput of one topology."""

    topology: Topology
    simulated: float
    """Samples per second."""
    measured: float
    """Samples per second."""

    @property
    def factor(self) -> float:
        """How many times as long a measured step took as the simulated one."""
        return self.simulated / self.measured  # Both are throughputs.


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """Simulated steps on machines that were not measured, and what they are based on."""

    curve: ScalingCurve
    origin: Topology
    """The topology of the recorded run that is the input of the simulation."""
    run: str
    """The id of this recorded run."""
    work: Work
    spread: Spread
    """How much the recorded step times vary; all simulated ranks are assumed to vary as much."""
    strategy: str
    network: Network
    per_node: int | None
    one_device_step: SimulatedStep
    """The step on one device, which has efficiency 1."""
    points: tuple[SimulatedStep, ...]
    checks: tuple[Check, ...] = ()
    """Measured topologies compared with their simulations, from few devices to many."""
    notes: tuple[Note, ...] = ()

    def efficiency(self, point: SimulatedStep) -> float:
        """Return the step time of one device / that of ``point``; the batch per device is equal."""
        return self.one_device_step.step / point.step

    @property
    def factor(self) -> float | None:
        """``Check.factor`` of the largest measured topology; None without one."""
        return self.checks[-1].factor if self.checks else None

    def corrected_throughput(self, point: SimulatedStep) -> float | None:
        """Return the throughput / ``factor``; None if ``point`` is not beyond the largest check."""
        if not self.checks or point.throughput is None:
            return None
        largest = self.checks[-1]
        beyond = point.topology.world > largest.topology.world
        return point.throughput / largest.factor if beyond else None


def make_exchange(
    sweeps: Sequence[Sweep] = (),
    *,
    inside: Link | None = None,
    between: Link | None = None,
    per_node: int | None = None,
    algorithm: str | None = None,
) -> Exchange:
    """Return the model of communication, made from sweeps (timed collectives), links, or both.
    The default algorithm is ``ring`` for the backend gloo, else ``quickest``.
    """
    if algorithm is not None:
        check_choice("algorithm", algorithm, ALGORITHMS)
    default = "ring" if any(sweep.backend == "gloo" for sweep in sweeps) else "quickest"
    chosen = cast(Algorithm, algorithm or default)
    if sweeps:
        return fit_exchange(sweeps, chosen, inside=inside, between=between)
    nearest = inside or between  # With one device per node there is no link inside.
    if nearest is None:
        raise SpecError(
            "a simulation needs the links between devices",
            hint=f"give {parameter('sweeps')} from `scalewise doctor --collectives`; or "
            f"{parameter('inside')} and {parameter('between')}, such as 200GB/s,5us",
        )
    if inside is None and per_node != 1:
        raise SpecError(
            "the link inside a node is not known",
            hint=f"give {parameter('inside')}, such as 200GB/s,5us; or {parameter('per_node', 1)} "
            "if each node has one device",
        )
    return Network(nearest, between, chosen)


def simulate_curve(
    curve: ScalingCurve,
    records: Sequence[RunRecord],
    at: Iterable[int],
    exchange: Exchange,
    *,
    per_node: int | None = None,
    gradients: float | None = None,
) -> Simulation:
    """Simulate a step on each number of devices in ``at``, from the run on the fewest devices (of
    repeats, the one with the median step time). ``per_node`` is the number of devices per node;
    ``gradients`` the bytes of a device's gradients, which override recorded bytes.
    """
    if curve.scaling == "strong":
        raise SpecError(
            f"a simulation keeps the batch per device, but {curve.name} keeps the global batch",
            hint="predict from the curve, or measure a study with a fixed batch per device, "
            "such as the global batch divided by the largest number of devices",
        )
    fewest_devices = min(record.spec.topology.world for record in records)
    repeats = [record for record in records if record.spec.topology.world == fewest_devices]
    repeats.sort(key=lambda record: (window := steady_window(record)).seconds / window.steps)
    record = repeats[(len(repeats) - 1) // 2]
    spec = record.spec
    # Refuse runs that split the model: pipelines, and those with several devices per model.
    if spec.traits.degree == "pipeline" or spec.degrees.degree > 1:
        raise SpecError(
            f"no device of the smallest run ({spec.topology}, {spec.strategy}) computes a whole "
            "model",
            hint="simulate from a run on one device, for example with ddp",
        )
    # A user's script may shard its model, which only the watcher knows.
    is_sharded = record.ranks[0].notes.facts.sharded
    strategy = Fsdp() if is_sharded else strategy_from_spec(spec)
    inputs = load_inputs(record, gradients)
    sweeps = exchange.sweeps
    swept_per_node = [sweep.topology.devices for sweep in sweeps if sweep.topology.nodes > 1]
    per_node = per_node or curve.devices_per_node or next(iter(swept_per_node), None)
    topologies = [_topology(count, per_node, sweeps) for count in sorted(set(at))]
    if not inputs.work.buckets:
        raise NotEnoughData(
            f"{record.folder} does not record how many bytes of gradients it exchanges",
            hint=f"give {parameter('gradients')}, such as 100MB: four bytes per parameter in fp32",
        )
    machine = _machine(record, exchange, inputs.spread)
    one_device, *points = simulate(inputs.work, [Topology(1, 1), *topologies], machine, strategy)
    checks, skipped = _check_measured(curve, records, inputs.work, machine, strategy)
    return Simulation(
        curve=curve,
        origin=spec.topology,
        run=spec.id,
        work=inputs.work,
        spread=inputs.spread,
        strategy=strategy.name,
        network=exchange.network if isinstance(exchange, MeasuredExchange) else exchange,
        per_node=per_node,
        one_device_step=one_device,
        points=tuple(points),
        checks=checks,
        notes=(*inputs.notes, *skipped),
    )


def _machine(record: RunRecord, exchange: Exchange, spread: Spread) -> Machine:
    """Return the simulated machine; single-threaded ranks and exchange compete for cores."""
    framework = record.environment.get("engine") or {}
    cores, busy_cores = record.environment.get("cores"), exchange.busy_cores
    uses_one_core = framework.get("devices") == ["cpu"] and framework.get("threads") == 1
    contention: Contention | Cores = Contention()  # By default it has no effect.
    if uses_one_core and cores and busy_cores is not None:
        contention = Cores(cores, busy_cores)
    return Machine(exchange=exchange, spread=spread, contention=contention)


def _topology(count: int, per_node: int | None, sweeps: Sequence[Sweep]) -> Topology:
    """Return the topology of ``count`` devices: one node, or several nodes that are all full."""
    check_integer("a number of devices", count, minimum=1)
    swept = [sweep.topology.devices for sweep in sweeps if sweep.topology.nodes == 1]
    max_one_node = max(swept, default=1) if per_node is None else per_node
    if count <= max_one_node:
        return Topology(1, count)
    if per_node is None:
        raise SpecError(
            f"devices per node are unknown, so {count} devices have no topology",
            hint=f"for example {parameter('per_node', 8)}",
        )
    if count % per_node:
        full = count // per_node * per_node
        raise SpecError(
            f"{count} devices do not fill nodes of {per_node}",
            hint=f"for example {parameter('at', [full, full + per_node])}",
        )
    return Topology(count // per_node, per_node)


def _check_measured(
    curve: ScalingCurve,
    records: Sequence[RunRecord],
    work: Work,
    machine: Machine,
    strategy: Strategy,
) -> tuple[tuple[Check, ...], tuple[Note, ...]]:
    """Return a check of each measured topology; a note for each that cannot be simulated."""
    checks, skipped = [], []
    measured = {record.spec.topology for record in records if record.spec.topology.world > 1}
    # The devices of a point are the total, those of a topology are per node.
    rates = {(point.nodes, point.devices): point.throughput for point in curve.points}
    for topology in sorted(measured, key=lambda scale: (scale.world, scale.nodes)):
        rate = rates.get((topology.nodes, topology.world))
        try:
            (step,) = simulate(work, [topology], machine, strategy)
        except NotEnoughData as problem:
            skipped.append(Note("not simulated", (str(topology), str(problem))))
            continue
        if rate and step.throughput:
            checks.append(Check(topology, step.throughput, rate.value))
    return tuple(checks), tuple(skipped)
