"""A power law, X(N) = once N^exponent, once = X(1): every doubling gives the same factor."""

import numpy as np

from scalewise.analysis.predict.laws import Fit, Parameters, fit_law
from scalewise.analysis.predict.series import Floats, Series, require_points


def fit(points: Series) -> Fit:
    """Return the power law by least squares of the logarithms."""
    require_points(points, 2, "a power law")
    is_throughput = points.metric == "throughput"
    formula = "X(N) = {once} N^{exponent}" if is_throughput else "T(N) = {once} / N^{exponent}"

    def solve(sample: Series) -> dict[str, float]:
        loss, level = np.polyfit(np.log(sample.devices), np.log(sample.cost), 1)
        once = float(np.exp(-level if is_throughput else level))
        return {"once": once, "exponent": float(1 - loss)}

    def cost(parameters: Parameters, at: Floats) -> Floats:
        once = 1 / parameters["once"] if is_throughput else parameters["once"]
        return np.asarray(once * at ** (1 - parameters["exponent"]))

    return fit_law("power", points, solve, cost, formula)
