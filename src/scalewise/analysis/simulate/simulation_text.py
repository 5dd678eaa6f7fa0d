"""What a simulation says, in sentences: what it is from, what comes out, how far to trust it."""

import math
from collections.abc import Sequence

from scalewise.analysis.number_format import format_count, format_number
from scalewise.analysis.simulate.network import Network
from scalewise.analysis.simulate.simulated_step import Simulated
from scalewise.analysis.simulate.simulation import Check, Simulation
from scalewise.analysis.simulate.units import bytes_told, told

WAYS = {
    "ring": "a ring",
    "tree": "a tree",
    "hierarchical": "a hierarchy that leaves a node once",
    "quickest": "the quickest of ring, tree and hierarchy",
}
CHECKED = "benchmarks/simulation.py"
"""What holds simulated steps against real ones, on the machine it is run on."""
OWN = ("input", "forward", "backward", "optimizer", "other")
ROUNDING = 5e-9
MUCH = 0.1
"""Share of a step from which a cause is worth a sentence."""


def sentences(found: Simulation) -> tuple[str, ...]:
    """Return all of it."""
    lines = [_from(found), _links(found.network)]
    lines += [_comes_out(found, point) for point in found.points[-1:]]
    return (*lines, *_unlike(found), *_rests_on(found.points), _trust(found))


def _from(found: Simulation) -> str:
    work, buckets = found.work, len(found.work.buckets)
    return (
        f"Simulated from the run {found.run} on {found.origin}: a step of "
        f"{_ms(work.seconds)}, with {bytes_told(work.size)} of gradients in {buckets} "
        f"{'bucket' if buckets == 1 else 'buckets'}, spread by {found.strategy}; "
        "the batch of a device stays the same."
    )


def _links(network: Network) -> str:
    between = f", {told(network.between)} between nodes" if network.between else ""
    way = WAYS[network.algorithm]
    return f"Links: {told(network.inside)} inside a node{between}; all-reduce by {way}."


def _comes_out(found: Simulation, point: Simulated) -> str:
    """Say where the step of one point goes, and what is left of so many devices."""
    added = {
        "the exchange": point.phases["exchange"],
        "the slowest rank": point.phases["balance"],
        "cores that are shared": point.phases["contention"],
    }
    own = math.fsum(point.phases[name] for name in OWN)
    waits = [f" + {_ms(cost)} for {what}" for what, cost in added.items() if cost > ROUNDING]
    return (
        f"{format_count(point.topology.world)} ({point.topology}): {_ms(own)} of a device's own "
        "work"
        f"{''.join(waits)} = {_ms(point.step)}; alone a device takes {_ms(found.alone.step)}, so "
        f"{100 * found.efficiency(point):.1f} % of so many is left."
    )


def _unlike(found: Simulation) -> list[str]:
    """Say where the slowest rank comes from, if much hangs on it."""
    if all(point.phases["balance"] < MUCH * point.step for point in found.points):
        return []
    return [
        f"Ranks are taken to be as unlike as the {len(found.spread.ratios)} steps that were "
        "recorded: a busy machine or a short run makes the slowest of many too slow."
    ]


def _rests_on(points: Sequence[Simulated]) -> list[str]:
    """Say once what several points rest on."""
    on: dict[str, list[str]] = {}
    for point in points:
        on.setdefault(point.reach, []).append(f"{point.topology.world:,}")
    return [f"On {', '.join(counts)}: {reach}." for reach, counts in on.items()]


def _trust(found: Simulation) -> str:
    """Say how far it was off where it was measured; and that this is no interval."""
    if not found.checks:
        return (
            "There is no interval: no larger run of this folder says how far the simulation is "
            f"off. {CHECKED} tells for a machine of yours, and a run on 2 devices for this model."
        )
    seen = ", ".join(_factor(check) for check in found.checks)
    lines = f"Real steps took {seen} as long as simulated, if they went over such links"
    factors = [abs(check.factor - 1) for check in found.checks]
    if len(factors) > 1 and factors[-1] > factors[0]:
        lines += "; the more devices, the further off"
    beyond = [(point, found.anchored(point)) for point in found.points]
    known = [(point, value) for point, value in beyond if value is not None]
    if known:
        point, value = known[-1]
        lines += (
            f"; with the last factor {format_count(point.topology.world)} give "
            f"{format_number(value)} "
            f"{found.curve.unit}/s instead of {format_number(point.throughput or 0.0)}"
        )
    if len({point.devices for point in found.curve.points}) > 1:
        lines += ". That is no interval: without --simulate there is one, from what was measured"
    else:
        lines += f". That is no interval: {CHECKED} holds more steps against real ones"
    return f"{lines}."


def _factor(check: Check) -> str:
    return f"{check.factor:.2f} × ({format_count(check.topology.world)})"


def _ms(seconds: float) -> str:
    """Return milliseconds for people.

    >>> _ms(0.0123456), _ms(1.5)
    ('12.35 ms', '1,500 ms')
    """
    return f"{format_number(1000 * seconds)} ms"
