"""The sentences of a simulation: what it is based on, its result, how far to trust it."""

import math
from collections.abc import Sequence

from scalewise.analysis.number_format import format_count, format_number
from scalewise.analysis.simulate.network import Network
from scalewise.analysis.simulate.simulated_step import SimulatedStep
from scalewise.analysis.simulate.simulation import Simulation
from scalewise.analysis.simulate.units import format_bytes, format_link

ALGORITHM_TEXTS = {
    "ring": "a ring",
    "tree": "a tree",
    "hierarchical": "a hierarchy that leaves a node once",
    "quickest": "the quickest of ring, tree and hierarchy",
}
BENCHMARK = "benchmarks/simulation.py"
"""Compares simulated steps with real ones, on the machine it is run on."""
DEVICE_PHASES = ("input", "forward", "backward", "optimizer", "other")
ROUNDING_SECONDS = 5e-9
MIN_BALANCE_SHARE = 0.1
"""Share of a step from which waiting for the slowest rank is worth a sentence."""


def simulation_sentences(simulation: Simulation) -> tuple[str, ...]:
    """Return all sentences of a simulation."""
    lines = [_origin(simulation), _links(simulation.network)]
    lines += [_largest_step(simulation, point) for point in simulation.points[-1:]]
    return (*lines, *_balance(simulation), *_basis(simulation.points), _trust(simulation))


def _origin(simulation: Simulation) -> str:
    work = simulation.work
    return (
        f"Simulated from the run {simulation.run} on {simulation.origin}: a step of "
        f"{_ms(work.seconds)}, {format_bytes(work.size)} of gradients in "
        f"{format_count(len(work.buckets), 'bucket')}, strategy {simulation.strategy}; "
        "the batch per device stays the same."
    )


def _links(network: Network) -> str:
    between = f", {format_link(network.between)} between nodes" if network.between else ""
    algorithm = ALGORITHM_TEXTS[network.algorithm]
    return (
        f"Links: {format_link(network.inside)} inside a node{between}; all-reduce by {algorithm}."
    )


def _largest_step(simulation: Simulation, point: SimulatedStep) -> str:
    """Return the parts of one step, and its efficiency."""
    overheads = {
        "of exposed communication": point.phases["exchange"],
        "of waiting for the slowest rank": point.phases["balance"],
        "of contention for cores": point.phases["contention"],
    }
    own = math.fsum(point.phases[name] for name in DEVICE_PHASES)
    added = [
        f" + {_ms(seconds)} {cause}"
        for cause, seconds in overheads.items()
        if seconds > ROUNDING_SECONDS
    ]
    return (
        f"{format_count(point.topology.world)} ({point.topology}): {_ms(own)} of a device's own "
        f"work{''.join(added)} = {_ms(point.step)}; one device alone takes "
        f"{_ms(simulation.alone.step)}: efficiency {100 * simulation.efficiency(point):.1f} %."
    )


def _balance(simulation: Simulation) -> list[str]:
    """Return where the spread of ranks comes from, if it matters."""
    if all(point.phases["balance"] < MIN_BALANCE_SHARE * point.step for point in simulation.points):
        return []
    return [
        f"Ranks are assumed to vary as much as the {len(simulation.spread.ratios)} recorded steps: "
        "a busy machine or a short run makes the slowest of many too slow."
    ]


def _basis(points: Sequence[SimulatedStep]) -> list[str]:
    """Return what the points are based on, once for all that share it."""
    counts: dict[str, list[str]] = {}
    for point in points:
        counts.setdefault(point.reach, []).append(f"{point.topology.world:,}")
    return [f"On {', '.join(worlds)}: {reach}." for reach, worlds in counts.items()]


def _trust(simulation: Simulation) -> str:
    """Return the error where it was measured, and that this is not an interval."""
    checks, points = simulation.checks, simulation.points
    if not checks:
        return (
            "There is no interval: this folder has no larger run to compare the simulation with. "
            f"{BENCHMARK} compares simulated and real steps on your machine; a run on 2 devices "
            "does so for this model."
        )
    factors = ", ".join(
        f"{check.factor:.2f} × ({format_count(check.topology.world)})" for check in checks
    )
    text = f"Measured steps took {factors} as long as simulated, if they used such links"
    if len(checks) > 1 and abs(checks[-1].factor - 1) > abs(checks[0].factor - 1):
        text += "; the error grows with the number of devices"
    corrected = [(point, simulation.corrected_throughput(point)) for point in points]
    beyond = [(point, throughput) for point, throughput in corrected if throughput is not None]
    if beyond:
        point, throughput = beyond[-1]
        text += (
            f"; corrected by the last factor, {format_count(point.topology.world)} give "
            f"{format_number(throughput)} {simulation.curve.unit}/s instead of "
            f"{format_number(point.throughput or 0.0)}"
        )
    if len({point.devices for point in simulation.curve.points}) > 1:
        return f"{text}. This is no interval: predict without --simulate gives one."
    return f"{text}. This is no interval: {BENCHMARK} compares more steps with real ones."


def _ms(seconds: float) -> str:
    """Return seconds as milliseconds.

    >>> _ms(0.0123456), _ms(1.5)
    ('12.35 ms', '1,500 ms')
    """
    return f"{format_number(1000 * seconds)} ms"
