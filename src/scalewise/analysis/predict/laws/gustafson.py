"""Gustafson's law: X(N) = once (N − serial (N − 1)) with once = X(1): the work grows with N."""

import numpy as np

from scalewise.analysis.measure.table_start import nonnegative_least_squares
from scalewise.analysis.predict.laws import Fit, Parameters, fit_law
from scalewise.analysis.predict.series import Floats, Series, require_points


def fit(points: Series) -> Fit:
    """Return Gustafson's law by least squares of the speed (X or 1 / T), which is linear in N."""
    require_points(points, 2, "Gustafson's law")
    is_throughput = points.metric == "throughput"
    formula = "X(N) = {once} (N − {serial} (N − 1))"
    if not is_throughput:
        formula = "T(N) = {once} / (N − {serial} (N − 1))"

    def solve(sample: Series) -> dict[str, float]:
        speed = sample.devices / sample.cost
        columns = np.stack([np.ones_like(speed), sample.devices], axis=1)
        serial, parallel = nonnegative_least_squares(columns, speed)
        once = serial + parallel
        return {"once": float(once if is_throughput else 1 / once), "serial": float(serial / once)}

    def cost(parameters: Parameters, at: Floats) -> Floats:
        once = parameters["once"] if is_throughput else 1 / parameters["once"]
        return at / (once * (at - parameters["serial"] * (at - 1)))

    return fit_law("gustafson", points, solve, cost, formula)
