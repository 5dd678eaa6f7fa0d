"""Constant efficiency: more devices are as efficient as the largest measured count."""

import numpy as np

from scalewise.analysis.predict.laws import Fit, Parameters, fit_law
from scalewise.analysis.predict.series import Floats, Series, require_points


def fit(points: Series) -> Fit:
    """Return the law that keeps the cost of the last point."""
    require_points(points, 1, "constant efficiency")
    is_throughput = points.metric == "throughput"
    formula = "X(N) = {rate} N" if is_throughput else "T(N) = {work} / N"

    def solve(sample: Series) -> dict[str, float]:
        last = float(sample.cost[-1])
        return {"rate": 1 / last} if is_throughput else {"work": last}

    def cost(parameters: Parameters, at: Floats) -> Floats:
        return np.full_like(at, 1 / parameters["rate"] if is_throughput else parameters["work"])

    return fit_law("constant", points, solve, cost, formula)
