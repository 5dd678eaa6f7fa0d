"""Gustafson's law: the work grows with the devices, and a fixed part of the time is serial.

speedup(N) = N − serial (N − 1)
"""

from collections.abc import Mapping

import numpy as np

from scalewise.analysis.predict.laws import Fit, fitted, nonnegative
from scalewise.analysis.predict.series import Floats, Series, need


def fit(points: Series) -> Fit:
    """Return Gustafson's law by least squares of the speed, which is a line in N."""
    need(points, 2, "Gustafson's law")
    by_rate = points.metric == "throughput"
    formula = "X(N) = {once} (N − {serial} (N − 1))"
    if not by_rate:
        formula = "T(N) = {once} / (N − {serial} (N − 1))"

    def solve(some: Series) -> dict[str, float]:
        speed = some.devices / some.cost
        line = np.stack([np.ones_like(speed), some.devices], axis=1)
        serial, parallel = nonnegative(line, speed)
        once = serial + parallel
        return {"once": float(once if by_rate else 1 / once), "serial": float(serial / once)}

    def cost(found: Mapping[str, float], at: Floats) -> Floats:
        once = found["once"] if by_rate else 1 / found["once"]
        return at / (once * (at - found["serial"] * (at - 1)))

    return fitted("gustafson", points, solve, cost, formula)
