"""Gunther's universal scalability law: contention for shared resources, and crosstalk.

X(N) = rate N / (1 + contention (N − 1) + crosstalk N (N − 1))
with a peak at N = √((1 − contention) / crosstalk)
"""

import numpy as np

from scalewise.analysis.predict.laws import Fit, Parameters, fit_law, nonnegative_least_squares
from scalewise.analysis.predict.series import Floats, Series, require_points


def fit(points: Series) -> Fit:
    """Return the universal law by least squares of N / X, which is linear in the unknowns."""
    require_points(points, 3, "the universal law")
    by_rate = points.metric == "throughput"
    formula = "X(N) = {rate} N / (1 + {contention} (N − 1) + {crosstalk} N (N − 1))"
    if not by_rate:
        formula = "T(N) = {once} (1 + {contention} (N − 1) + {crosstalk} N (N − 1)) / N"

    def solve(sample: Series) -> dict[str, float]:
        n = sample.devices
        columns = np.stack([np.ones_like(n), n - 1, n * (n - 1)], axis=1)
        alone, contention, crosstalk = nonnegative_least_squares(columns, sample.cost)
        alone = max(alone, 1e-6 * sample.cost.min())  # The quotients below need it above 0.
        return {
            **({"rate": float(1 / alone)} if by_rate else {"once": float(alone)}),
            "contention": float(contention / alone),
            "crosstalk": float(crosstalk / alone),
        }

    def cost(parameters: Parameters, at: Floats) -> Floats:
        alone = 1 / parameters["rate"] if by_rate else parameters["once"]
        contention, crosstalk = parameters["contention"], parameters["crosstalk"]
        return alone * (1 + contention * (at - 1) + crosstalk * at * (at - 1))

    return fit_law("universal", points, solve, cost, formula)
