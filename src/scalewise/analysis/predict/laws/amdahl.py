"""Amdahl's law: T(N) = once (serial + (1 − serial) / N) with once = T(1): speedup ≤ 1 / serial."""

import numpy as np

from scalewise.analysis.measure.table_start import nonnegative_least_squares
from scalewise.analysis.predict.laws import Fit, Parameters, fit_law
from scalewise.analysis.predict.series import Floats, Series, require_points


def fit(points: Series) -> Fit:
    """Return Amdahl's law by least squares of the cost (N · T or N / X), which is linear in N."""
    require_points(points, 2, "Amdahl's law")
    is_throughput = points.metric == "throughput"
    formula = "T(N) = {once} ({serial} + (1 − {serial})/N)"
    if is_throughput:
        formula = "X(N) = {once} / ({serial} + (1 − {serial})/N)"

    def solve(sample: Series) -> dict[str, float]:
        columns = np.stack([np.ones_like(sample.devices), sample.devices], axis=1)
        parallel, serial = nonnegative_least_squares(columns, sample.cost)
        once = parallel + serial
        return {"once": float(1 / once if is_throughput else once), "serial": float(serial / once)}

    def cost(parameters: Parameters, at: Floats) -> Floats:
        once = 1 / parameters["once"] if is_throughput else parameters["once"]
        return once * (parameters["serial"] * at + 1 - parameters["serial"])

    return fit_law("amdahl", points, solve, cost, formula)
