"""Gunther's universal scalability law: contention for shared resources, crosstalk of device pairs.

X(N) = rate N / (1 + contention (N − 1) + crosstalk N (N − 1))
with a peak at N = √((1 − contention) / crosstalk)
"""

import numpy as np

from scalewise.analysis.measure.table_start import nonnegative_least_squares
from scalewise.analysis.predict.laws import Fit, Parameters, fit_law
from scalewise.analysis.predict.series import Floats, Series, require_points


def fit(points: Series) -> Fit:
    """Return the law by least squares of the cost (N / X or N · T), linear in the unknowns."""
    require_points(points, 3, "the universal law")
    is_throughput = points.metric == "throughput"
    formula = "X(N) = {rate} N / (1 + {contention} (N − 1) + {crosstalk} N (N − 1))"
    if not is_throughput:
        formula = "T(N) = {once} (1 + {contention} (N − 1) + {crosstalk} N (N − 1)) / N"

    def solve(sample: Series) -> dict[str, float]:
        n = sample.devices
        columns = np.stack([np.ones_like(n), n - 1, n * (n - 1)], axis=1)
        cost_on_one, contention, crosstalk = nonnegative_least_squares(columns, sample.cost)
        cost_on_one = max(cost_on_one, 1e-6 * sample.cost.min())  # It is a divisor below.
        return {
            **({"rate": float(1 / cost_on_one)} if is_throughput else {"once": float(cost_on_one)}),
            "contention": float(contention / cost_on_one),
            "crosstalk": float(crosstalk / cost_on_one),
        }

    def cost(parameters: Parameters, at: Floats) -> Floats:
        cost_on_one = 1 / parameters["rate"] if is_throughput else parameters["once"]
        contention, crosstalk = parameters["contention"], parameters["crosstalk"]
        return cost_on_one * (1 + contention * (at - 1) + crosstalk * at * (at - 1))

    return fit_law("universal", points, solve, cost, formula)
