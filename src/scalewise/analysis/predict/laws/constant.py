"""Constant efficiency: losses stay what they were at the last measurement.

Every added device gives what a device of the last measurement gave.
"""

import numpy as np

from scalewise.analysis.predict.laws import Fit, Parameters, fit_law
from scalewise.analysis.predict.series import Floats, Series, require_points


def fit(points: Series) -> Fit:
    """Return the line through the origin and the last point."""
    require_points(points, 1, "constant efficiency")
    formula = "X(N) = {rate} N" if points.metric == "throughput" else "T(N) = {work} / N"
    return fit_law("constant", points, _solve, _cost, formula)


def _solve(points: Series) -> dict[str, float]:
    last = float(points.cost[-1])
    return {"rate": 1 / last} if points.metric == "throughput" else {"work": last}


def _cost(parameters: Parameters, at: Floats) -> Floats:
    work = parameters["work"] if "work" in parameters else 1 / parameters["rate"]
    return np.full_like(at, work)
