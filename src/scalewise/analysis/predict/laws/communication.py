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


def fit(points: Series) -> Fit:
    """Return the law with the terms that predict each point best from the others."""
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
    """Return the terms with the least leave-one-out error; fewer, where points are few."""
    columns, places = terms(points, points.devices), np.arange(len(points.devices))
    best: tuple[int, ...] = (0,)
    least = np.inf
    for size in range(1, min(len(TERMS), len(places) - 1) + 1):
        for others in combinations(range(1, len(TERMS)), size - 1):
            chosen = (0, *others)
            errors = []
            for place in places:
                kept = places != place
                found = nonnegative(columns[kept][:, chosen], points.cost[kept])
                told = columns[place, chosen] @ found
                errors.append(np.log(max(told, 1e-300) / points.cost[place]))
            error = float(np.square(errors).mean())
            if error < 0.9 * least:  # A term more has to earn it.
                best, least = chosen, error
    return best


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
