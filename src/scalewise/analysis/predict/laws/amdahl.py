"""Amdahl's law: a part of the work is serial, and no device shortens it.

    T(N) = once (serial + (1 − serial) / N)

so the speedup never exceeds 1 / serial.
"""

from collections.abc import Mapping

import numpy as np

from scalewise.analysis.predict.laws import Fit, fitted, nonnegative
from scalewise.analysis.predict.series import Floats, Series, need


def fit(points: Series) -> Fit:
    """Return Amdahl's law by least squares of N · T, which is a line in N."""
    need(points, 2, "Amdahl's law")
    formula = "T(N) = {once} ({serial} + (1 − {serial})/N)"
    if points.metric == "throughput":
        formula = "X(N) = {once} / ({serial} + (1 − {serial})/N)"
    by_rate = points.metric == "throughput"

    def solve(some: Series) -> dict[str, float]:
        fixed = np.stack([np.ones_like(some.devices), some.devices], axis=1)
        work, serial = nonnegative(fixed, some.cost)
        once = work + serial
        return {"once": float(1 / once if by_rate else once), "serial": float(serial / once)}

    def cost(found: Mapping[str, float], at: Floats) -> Floats:
        once = 1 / found["once"] if by_rate else found["once"]
        return once * (found["serial"] * at + 1 - found["serial"])

    return fitted("amdahl", points, solve, cost, formula)
