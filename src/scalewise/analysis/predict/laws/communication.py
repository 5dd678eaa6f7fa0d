"""The communication law of data-parallel training: compute and a hierarchical all-reduce.

    cost(N) = compute + ring 2(m−1)/m + network 2(k−1)/k + latency log2 N

in device-seconds per sample, with d devices per node, m = min(N, d) used in each, k = ⌈N/d⌉ nodes.
Under strong scaling each device still exchanges the same bytes per step but trains 1/N of the
samples, so all terms except compute are multiplied by N.
"""

from itertools import combinations

import numpy as np

from scalewise.analysis.measure.table_start import nonnegative_least_squares
from scalewise.analysis.predict.laws import (
    Fit,
    Parameters,
    cost_symbol,
    fit_law,
)
from scalewise.analysis.predict.series import Floats, Series, require_points

TERMS = ("compute", "ring", "network", "latency")
SPARE_POINTS = 2
"""With this many more points than terms that are nonzero at some of them, all are fitted."""


def fit(points: Series) -> Fit:
    """Return the law, with only the terms that these points can separate."""
    require_points(points, 2, "the law of communication")
    chosen = _choose_terms(points)

    def solve(resampled: Series) -> dict[str, float]:
        columns = terms(points, resampled.devices)[:, list(chosen)]
        sizes = nonnegative_least_squares(columns, resampled.cost)
        return dict(zip((TERMS[term] for term in chosen), map(float, sizes)))

    def cost(parameters: Parameters, at: Floats) -> Floats:
        sizes = np.array([parameters.get(name, 0.0) for name in TERMS])
        return np.asarray(terms(points, at) @ sizes)

    factor = "N " if points.scaling == "strong" else ""
    term_texts = (
        "{compute}", f"{{ring}} {factor}2(m−1)/m", f"{{network}} {factor}2(k−1)/k",
        f"{{latency}} {factor}log2 N",
    )  # fmt: skip
    formula = f"{cost_symbol(points)} = {' + '.join(term_texts[term] for term in chosen)}"
    if TERMS.index("ring") in chosen:
        formula += f", m = min(N, {points.per_node})" if points.per_node else ", m = N"
    if TERMS.index("network") in chosen:
        formula += f", k = ⌈N/{points.per_node}⌉"
    return fit_law("communication", points, solve, cost, formula)


def terms(points: Series, at: Floats) -> Floats:
    """Return what each term's coefficient is multiplied by: a row per count, a column per term."""
    in_node, nodes = points.devices_in_node(at), points.nodes(at)
    exchange = np.stack([2 * (in_node - 1) / in_node, 2 * (nodes - 1) / nodes, np.log2(at)], axis=1)
    if points.scaling == "strong":
        exchange = exchange * at[:, None]
    return np.column_stack([np.ones_like(at), exchange])


def _choose_terms(points: Series) -> tuple[int, ...]:
    """Return the indices of the terms to fit. A term is visible if some measured count makes it
    nonzero. All visible terms are fitted if the points suffice (SPARE_POINTS); else the subset,
    always with compute, that has the smallest leave-one-out error.
    """
    columns, count = terms(points, points.devices), len(points.devices)
    visible = tuple(term for term in range(len(TERMS)) if columns[:, term].any())
    if count >= len(visible) + SPARE_POINTS:
        return visible
    best, best_error = visible[:1], np.inf
    for size in range(min(len(visible), count - 1)):  # One point is left out below.
        for exchange_terms in combinations(visible[1:], size):
            chosen = (visible[0], *exchange_terms)
            error = _leave_one_out_error(columns[:, chosen], points.cost)
            if error < 0.9 * best_error:  # An additional term must improve the fit clearly.
                best, best_error = chosen, error
    return best


def _leave_one_out_error(columns: Floats, cost: Floats) -> float:
    """Return the mean square relative error of each point, predicted from the other points."""
    indices = np.arange(len(cost))
    predicted = [
        columns[index]
        @ nonnegative_least_squares(columns[indices != index], cost[indices != index])
        for index in indices
    ]
    return float(np.square(np.array(predicted) / cost - 1).mean())
