"""A power law: every doubling gives the same factor.

X(N) = once N^exponent
"""

from collections.abc import Mapping

import numpy as np

from scalewise.analysis.predict.laws import Fit, fitted
from scalewise.analysis.predict.series import Floats, Series, need


def fit(points: Series) -> Fit:
    """Return the power law by least squares of the logarithms."""
    need(points, 2, "a power law")
    by_rate = points.metric == "throughput"
    formula = "X(N) = {once} N^{exponent}" if by_rate else "T(N) = {once} / N^{exponent}"

    def solve(some: Series) -> dict[str, float]:
        loss, level = np.polyfit(np.log(some.devices), np.log(some.cost), 1)
        once = float(np.exp(-level if by_rate else level))
        return {"once": once, "exponent": float(1 - loss)}

    def cost(found: Mapping[str, float], at: Floats) -> Floats:
        once = 1 / found["once"] if by_rate else found["once"]
        return np.asarray(once * at ** (1 - found["exponent"]))

    return fitted("power", points, solve, cost, formula)
