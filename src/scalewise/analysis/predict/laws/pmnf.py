"""The performance model normal form, searched as Extra-P does (Calotoiu et al., 2013).

    cost(N) = fixed + factor · N^i · log2(N)^j

over a table of exponents; the term that predicts each point best from the others
wins, and a constant where none does better.
"""

from collections.abc import Mapping

import numpy as np

from scalewise.analysis.predict.laws import Fit, face, fitted
from scalewise.analysis.predict.series import Floats, Series, need

EXPONENTS = (
    (0, 1), (0, 2), *((power, log) for power in (1/4, 1/3, 1/2, 2/3, 3/4, 1, 3/2, 2, 5/2)
                      for log in (0, 1, 2)),
    (4/5, 0), (5/4, 0), (5/4, 1), (4/3, 0), (4/3, 1), (5/3, 0), (7/4, 0), (9/4, 0), (7/3, 0),
    (8/3, 0), (11/4, 0), (3, 0), (3, 1),
)  # fmt: skip
LEAST = 5e-4
"""A term that makes up less of every value is no term."""


def fit(points: Series) -> Fit:
    """Return the best of the forms by leave-one-out error."""
    need(points, 3, "a search of the normal form")
    power, log = _best(points)
    left = face(points)[1]

    def term(at: Floats) -> Floats:
        return np.asarray(at**power * np.log2(at) ** log)

    def solve(some: Series) -> dict[str, float]:
        if not (power or log):
            return {"fixed": float(1 / np.mean(1 / some.cost))}
        fixed, factor = _line(term(some.devices), some.cost)
        return {"fixed": fixed, "factor": factor}

    def cost(found: Mapping[str, float], at: Floats) -> Floats:
        told = found["fixed"] + found.get("factor", 0.0) * term(at)
        return np.asarray(
            np.maximum(told, 1e-3 * points.cost.min())
        )  # A falling term must not reach 0.

    return fitted("pmnf", points, solve, cost, f"{left} = {_written(power, log)}")


def _written(power: float, log: int) -> str:
    if not (power or log):
        return "{fixed}"
    parts = [f"N^{power:.3g}"] * bool(power) + [f"log2(N)^{log}".removesuffix("^1")] * bool(log)
    return "{fixed} + {factor} " + " ".join(parts).replace("N^1 ", "N ").removesuffix("^1")


def _best(points: Series) -> tuple[float, int]:
    """Return the exponents with the least leave-one-out error, or (0, 0) for a constant."""
    n, cost = points.devices, points.cost
    count = len(n)
    alone = (cost.sum() - cost) / (count - 1)
    best, least = (0.0, 0), _smape(alone, cost)
    for power, log in EXPONENTS:
        values = n**power * np.log2(n) ** log
        rows = np.stack([np.ones(count), values], axis=1)
        lever = np.einsum("ij,ji->i", rows, np.linalg.pinv(rows))
        if np.ptp(values) == 0 or (lever > 1 - 1e-9).any():
            continue
        fixed, factor = _line(values, cost)
        told = fixed + factor * values
        error = _smape(cost - (cost - told) / (1 - lever), cost)
        if error < least and (np.abs(factor * values) / cost).max() >= LEAST:
            best, least = (power, log), error
    return best


def _line(values: Floats, cost: Floats) -> tuple[float, float]:
    factor, fixed = np.polyfit(values, cost, 1)
    return float(fixed), float(factor)


def _smape(told: Floats, cost: Floats) -> float:
    return float(np.mean(2 * np.abs(told - cost) / (np.abs(told) + np.abs(cost))))
