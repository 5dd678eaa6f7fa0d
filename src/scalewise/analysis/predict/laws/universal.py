"""Gunther's universal law: devices contend for something, and talk each to each.

    X(N) = rate N / (1 + contention (N − 1) + crosstalk N (N − 1))

With crosstalk it has a peak, at N = √((1 − contention) / crosstalk).
"""

from collections.abc import Mapping

import numpy as np

from scalewise.analysis.predict.laws import Fit, fitted, nonnegative
from scalewise.analysis.predict.series import Floats, Series, need


def fit(points: Series) -> Fit:
    """Return the universal law by least squares of N / X, which is linear in the unknowns."""
    need(points, 3, "the universal law")
    by_rate = points.metric == "throughput"
    formula = "X(N) = {rate} N / (1 + {contention} (N − 1) + {crosstalk} N (N − 1))"
    if not by_rate:
        formula = "T(N) = {once} (1 + {contention} (N − 1) + {crosstalk} N (N − 1)) / N"

    def solve(some: Series) -> dict[str, float]:
        n = some.devices
        alone, waiting, talking = nonnegative(
            np.stack([np.ones_like(n), n - 1, n * (n - 1)], axis=1), some.cost
        )
        alone = max(alone, 1e-6 * some.cost.min())  # Nothing is faster than no time at all.
        first = {"rate": float(1 / alone)} if by_rate else {"once": float(alone)}
        return {
            **first,
            "contention": float(waiting / alone),
            "crosstalk": float(talking / alone),
        }

    def cost(found: Mapping[str, float], at: Floats) -> Floats:
        alone = 1 / found["rate"] if by_rate else found["once"]
        return alone * (1 + found["contention"] * (at - 1) + found["crosstalk"] * at * (at - 1))

    return fitted("universal", points, solve, cost, formula)
