"""The best of several scales: for a purpose, for each common purpose, and the Pareto front."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from scalewise.analysis.advise.purpose import GOALS, Purpose
from scalewise.analysis.advise.scale import Scale

TIE_TOLERANCE = 0.01
"""Scales within this fraction of the best are equally good: the smallest of them is chosen."""
COMMON_PURPOSES: Mapping[str, Purpose] = {
    "balanced": Purpose.parse("balanced"),
    "least time": Purpose.parse("time"),
    "least device-hours": Purpose((), "device-hours"),
    "efficiency of 80 %": Purpose.parse("efficiency=0.8"),
}
"""By name: what users most often want."""


def best_scale(
    scales: Iterable[Scale],
    purpose: Purpose,
    goal: Callable[[Scale], float],
    among: Collection[Scale] | None = None,
) -> Scale | None:
    """Return the smallest of the best scales that meet all limits; None if none does, or if none of
    the best is ``among`` these.
    """
    feasible = [scale for scale in scales if excess(scale, purpose) <= 0]
    if not feasible:
        return None
    best = min(map(goal, feasible))
    # If only time counts and all were measured, the fastest is the fastest.
    only_time = goal is GOALS["time"] and not purpose.limits
    is_exact = only_time and all(scale.measured for scale in feasible)
    tolerance = 0.0 if is_exact else TIE_TOLERANCE
    ties = [scale for scale in feasible if goal(scale) <= best * (1 + tolerance)]
    wanted = ties if among is None else [scale for scale in ties if scale in among]
    return min(wanted, key=lambda scale: scale.devices, default=None)


def excess(scale: Scale, purpose: Purpose) -> float:
    """Return the log of the largest factor by which a scale misses a limit; ≤ 0 if it meets all."""
    largest = -math.inf
    for limit in purpose.limits:
        value = limit.quantity(scale)
        assert value is not None  # Callers refused unknown quantities.
        log_ratio = math.log(value.value / limit.bound)
        largest = max(largest, -log_ratio if limit.kind.is_lower_bound else log_ratio)
    return largest


def best_by_purpose(
    scales: Sequence[Scale], among: Collection[Scale] | None = None
) -> dict[str, Scale]:
    """Return the best scale for each of ``COMMON_PURPOSES`` that can be judged and met; of equally
    good ones, the smallest that is ``among`` these, such as a Pareto front.
    """
    best = {
        name: best_scale(scales, purpose, GOALS[purpose.objective(scales)], among)
        for name, purpose in COMMON_PURPOSES.items()
        if all(limit.quantity(scale) for limit in purpose.limits for scale in scales)
    }
    return {name: scale for name, scale in best.items() if scale}


def pareto_front(scales: Sequence[Scale], cost: Callable[[Scale], float]) -> tuple[Scale, ...]:
    """Return the scales that no other scale equals or beats in both slowness and ``cost``."""
    pairs = {scale.devices: (scale.slowness, cost(scale)) for scale in scales}
    front, least_cost = set(), math.inf
    # A set: scales with the same pair of values do not exclude each other.
    for slowness, other_cost in sorted(set(pairs.values())):
        if other_cost < least_cost:
            front.add((slowness, other_cost))
            least_cost = other_cost
    return tuple(scale for scale in scales if pairs[scale.devices] in front)
