"""Sentences that describe a simulation: its basis, its result, and how far to trust it."""

import math

from scalewise.analysis.number_format import format_count, format_number
from scalewise.analysis.simulate import Link, Note, SimulatedStep, Simulation
from scalewise.analysis.simulate.units import BYTES_PER_UNIT
from scalewise.record.schema import DEVICE_PHASES

ALGORITHMS = {
    "ring": "a ring",
    "tree": "a tree",
    "hierarchical": "a hierarchy that leaves a node once",
    "quickest": "the quickest of ring, tree and hierarchy",
}
NOTES = {
    "exchanging ranks": "computation was measured on {} ranks that also exchanged gradients: their "
    "mutual slow-down is included",
    "no gradient bytes": "gradient bytes were not recorded: no exchange is simulated",
    "even pace": "arrival times of gradients were not recorded: an even pace is assumed",
    "no compression ratio": "the compression ratio of {} was not recorded: uncompressed gradients "
    "are assumed",
    "not simulated": "{} was measured, but cannot be simulated: {}",
}
"""By code of a note: what is assumed, with its values in place of the braces."""
BENCHMARK = "benchmarks/simulation.py"
"""Compares simulated steps with real ones, on the machine it is run on."""
ROUNDING_SECONDS = 5e-9
"""Shorter parts of a step are rounding errors and are not named."""
MIN_BALANCE_SHARE = 0.1
"""Share of a step from which waiting for the slowest rank is worth a sentence."""


def simulation_sentences(simulation: Simulation) -> tuple[str, ...]:
    """Return all sentences of a simulation."""
    work, network, points = simulation.work, simulation.network, simulation.points
    between = f", {_link(network.between)} between nodes" if network.between else ""
    lines = [
        f"Simulated from the run {simulation.run} on {simulation.origin}: a step of "
        f"{_ms(work.seconds)}, {_bytes(work.size)} of gradients in "
        f"{format_count(len(work.buckets), 'bucket')}, strategy {simulation.strategy}; "
        "the batch per device stays the same.",
        f"Links: {_link(network.inside)} inside a node{between}; all-reduce by "
        f"{ALGORITHMS[network.algorithm]}.",
        *(_largest_step_sentence(simulation, point) for point in points[-1:]),  # May be none.
    ]
    if any(point.phases["balance"] >= MIN_BALANCE_SHARE * point.step for point in points):
        lines.append(
            f"Ranks are assumed to vary as much as the {len(simulation.spread.ratios)} recorded "
            "steps: the wait for the slowest rank is overestimated if the machine was busy, "
            "underestimated if the run was short."
        )
    worlds_by_reach: dict[str, list[str]] = {}
    for point in points:
        worlds_by_reach.setdefault(describe_reach(point), []).append(f"{point.topology.world:,}")
    lines += [f"On {', '.join(worlds)}: {reach}." for reach, worlds in worlds_by_reach.items()]
    return (*lines, _trust_sentence(simulation))


def describe_reach(point: SimulatedStep) -> str:
    """Return how the communication in a step is known: timed, extrapolated or given."""
    topology, timed, shared = point.topology, point.reach.timed, point.reach.shared_devices
    if topology.world == 1:
        return "one device does not communicate"
    if topology in timed:
        text = f"communication was timed on {topology}"
    elif timed:
        text = f"communication was timed on {', '.join(map(str, timed))}, and "
        if topology.nodes > 1 and all(timed_topology.nodes == 1 for timed_topology in timed):
            text += "the link between nodes was given"
        else:
            text += "is extrapolated with fitted links"
    else:
        text = "links as given"
    if topology.devices <= max(1, shared):  # The slow-down was measured, or there is none.
        return text
    measured = f"was measured up to {format_count(shared)}" if shared else "is unknown"
    return f"{text}; the slow-down between devices of one node {measured}"


def describe_note(note: Note) -> str:
    """Return what is assumed because it was not recorded, or what could not be compared."""
    return NOTES[note.code].format(*note.values)


def _largest_step_sentence(simulation: Simulation, point: SimulatedStep) -> str:
    """Return the parts of the step on the most devices, and its efficiency."""
    overheads = {
        "of exposed communication": point.phases["exchange"],
        "of waiting for the slowest rank": point.phases["balance"],
        "of contention for cores": point.phases["contention"],
    }
    own_work = math.fsum(point.phases[name] for name in DEVICE_PHASES)
    added = [
        f" + {_ms(seconds)} {cause}"
        for cause, seconds in overheads.items()
        if seconds > ROUNDING_SECONDS
    ]
    return (
        f"{format_count(point.topology.world)} ({point.topology}): {_ms(own_work)} of a device's "
        f"own work{''.join(added)} = {_ms(point.step)}; one device alone takes "
        f"{_ms(simulation.one_device_step.step)}: efficiency "
        f"{100 * simulation.efficiency(point):.1f} %."
    )


def _trust_sentence(simulation: Simulation) -> str:
    """Say by which factors measured steps differ from simulated ones, instead of an interval."""
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
    text = f"Measured steps took {factors} as long as simulated with these links"
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
        return f"{text}. These factors are no interval: a prediction from the curve gives one."
    return f"{text}. These factors are no interval: {BENCHMARK} compares more steps with real ones."


def _link(link: Link) -> str:
    """Return bandwidth and latency as text, such as ``25 GB/s and 20 µs``."""
    return f"{_bytes(link.bandwidth, digits=4)}/s and {link.latency * 1e6:.3g} µs"


def _bytes(size: float, digits: int = 3) -> str:
    """Return bytes in decimal units, such as ``212 kB``."""
    units = ("TB", "GB", "MB", "kB")
    unit = next((unit for unit in units if size >= BYTES_PER_UNIT[unit]), "B")
    return f"{size / BYTES_PER_UNIT[unit]:.{digits}g} {unit}"


def _ms(seconds: float) -> str:
    return f"{format_number(1000 * seconds)} ms"
