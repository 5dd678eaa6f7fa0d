"""Constant efficiency: whatever was lost is lost, and no more will be.

Every added device gives what a device of the last measurement gave.
"""

from collections.abc import Mapping

import numpy as np

from scalewise.analysis.predict.laws import Fit, fitted
from scalewise.analysis.predict.series import Floats, Series, need


def fit(points: Series) -> Fit:
    """Return the line through the origin and the last point."""
    need(points, 1, "constant efficiency")
    formula = "X(N) = {rate} N" if points.metric == "throughput" else "T(N) = {work} / N"
    return fitted("constant", points, _solve, _cost, formula)


def _solve(points: Series) -> dict[str, float]:
    last = float(points.cost[-1])
    return {"rate": 1 / last} if points.metric == "throughput" else {"work": last}


def _cost(found: Mapping[str, float], at: Floats) -> Floats:
    return np.full_like(at, found["work"] if "work" in found else 1 / found["rate"])
