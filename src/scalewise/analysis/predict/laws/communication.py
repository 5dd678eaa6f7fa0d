"""Our own law of data-parallel training: compute, and a hierarchical all-reduce.

    cost(N) = compute + ring 2(m−1)/m + network 2(k−1)/k + latency log2 N

device-seconds per sample, with m = min(N, d) devices in a node and k = ⌈N/d⌉
nodes. Rings saturate: 2(m−1)/m goes from 1 to 2 and no further. Under strong
scaling a step keeps its exchange while its compute shrinks, so all but compute is
multiplied by N.
"""

from collections.abc import Mapping
from itertools import combinations

import numpy as np

from scalewise.analysis.predict.laws import Fit, face, fitted, nonnegative
from scalewise.analysis.predict.series import Floats, Series, need

TERMS = ("compute", "ring", "network", "latency")
SPARE = 2


def fit(points: Series) -> Fit:
    """Return the law with the terms that these points can tell apart."""
    need(points, 2, "the law of communication")
    chosen = _chosen(points)

    def solve(some: Series) -> dict[str, float]:
        found = nonnegative(terms(points, some.devices)[:, list(chosen)], some.cost)
        return dict(zip((TERMS[place] for place in chosen), map(float, found)))

    def cost(found: Mapping[str, float], at: Floats) -> Floats:
        sizes = np.array([found.get(name, 0.0) for name in TERMS])
        return np.asarray(terms(points, at) @ sizes)

    return fitted("communication", points, solve, cost, _formula(points, chosen))


def terms(points: Series, at: Floats) -> Floats:
    """Return what each term is multiplied with, a column each."""
    inside, nodes = points.inside(at), points.nodes(at)
    exchange = np.stack([2 * (inside - 1) / inside, 2 * (nodes - 1) / nodes, np.log2(at)], axis=1)
    if points.scaling == "strong":
        exchange = exchange * at[:, None]
    return np.column_stack([np.ones_like(at), exchange])


def _chosen(points: Series) -> tuple[int, ...]:
    """Return the terms that these points can tell apart.

    All that they show at all, where there are two points to spare; of fewer
    points, the terms with the least leave-one-out error.
    """
    columns, places = terms(points, points.devices), np.arange(len(points.devices))
    shown = tuple(place for place in range(len(TERMS)) if columns[:, place].any())
    if len(places) >= len(shown) + SPARE:
        return shown
    best, least = shown[:1], np.inf
    for size in range(min(len(shown), len(places) - 1)):
        for others in combinations(shown[1:], size):
            chosen = (shown[0], *others)
            error = _left_out(columns[:, chosen], points.cost)
            if error < 0.9 * least:  # A term more has to earn it.
                best, least = chosen, error
    return best


def _left_out(columns: Floats, cost: Floats) -> float:
    """Return the mean square error of each point, as a share, predicted from the others."""
    places = np.arange(len(cost))
    told = [
        columns[place] @ nonnegative(columns[places != place], cost[places != place])
        for place in places
    ]
    return float(np.square(np.array(told) / cost - 1).mean())


def _formula(points: Series, chosen: tuple[int, ...]) -> str:
    times = "N " if points.scaling == "strong" else ""
    written = {
        "compute": "{compute}", "ring": f"{{ring}} {times}2(m−1)/m",
        "network": f"{{network}} {times}2(k−1)/k", "latency": f"{{latency}} {times}log2 N",
    }  # fmt: skip
    told = " + ".join(written[TERMS[place]] for place in chosen)
    where = []
    if 1 in chosen:
        where.append(f"m = min(N, {points.per_node})" if points.per_node else "m = N")
    if 2 in chosen:
        where.append(f"k = ⌈N/{points.per_node}⌉")
    return ", ".join([f"{face(points)[1]} = {told}", *where])
