"""The performance model normal form, searched as Extra-P does (Calotoiu et al., 2013): cost(N) =
fixed + factor · N^i · log2(N)^j, where i and j from a table have the smallest leave-one-out error.
"""

import numpy as np

from scalewise.analysis.predict.laws import Fit, Parameters, cost_symbol, fit_law
from scalewise.analysis.predict.series import Floats, Series, require_points

EXPONENTS = (  # (i, j) of the formula above.
    (0, 1), (0, 2), *((i, j) for i in (1/4, 1/3, 1/2, 2/3, 3/4, 1, 3/2, 2, 5/2) for j in (0, 1, 2)),
    (4/5, 0), (5/4, 0), (5/4, 1), (4/3, 0), (4/3, 1), (5/3, 0), (7/4, 0), (9/4, 0), (7/3, 0),
    (8/3, 0), (11/4, 0), (3, 0), (3, 1),
)  # fmt: skip
MIN_TERM_SHARE = 5e-4
"""A term is ignored if it is below this share of the cost at every point."""


def fit(points: Series) -> Fit:
    """Return the form with the smallest leave-one-out error."""
    require_points(points, 3, "a search of the normal form")
    power, log_power = _best_exponents(points)
    is_constant = power == log_power == 0

    def term(at: Floats) -> Floats:
        return np.asarray(at**power * np.log2(at) ** log_power)

    def solve(sample: Series) -> dict[str, float]:
        if is_constant:
            return {"fixed": float(1 / np.mean(1 / sample.cost))}  # From the mean rate per device.
        fixed, factor = _fit_line(term(sample.devices), sample.cost)
        return {"fixed": fixed, "factor": factor}

    def cost(parameters: Parameters, at: Floats) -> Floats:
        values = parameters["fixed"] + parameters.get("factor", 0.0) * term(at)
        # A falling cost must stay above 0 when extrapolated.
        return np.asarray(np.maximum(values, 1e-3 * points.cost.min()))

    formula = "{fixed}"
    if not is_constant:
        exponents = {"N": power, "log2(N)": log_power}
        parts = [base if e == 1 else f"{base}^{e:.3g}" for base, e in exponents.items() if e]
        formula += " + {factor} " + " ".join(parts)
    return fit_law("pmnf", points, solve, cost, f"{cost_symbol(points)} = {formula}")


def _best_exponents(points: Series) -> tuple[float, int]:
    """Return the (i, j) with the smallest leave-one-out error; (0, 0) is a constant cost."""
    n, cost = points.devices, points.cost
    count = len(n)
    mean_of_others = (cost.sum() - cost) / (count - 1)
    best, best_error = (0.0, 0), _smape(mean_of_others, cost)
    for power, log_power in EXPONENTS:
        values = n**power * np.log2(n) ** log_power
        rows = np.stack([np.ones(count), values], axis=1)
        leverage = np.einsum("ij,ji->i", rows, np.linalg.pinv(rows))
        # A leverage of 1 means: without that point, the other points do not determine the line.
        if np.ptp(values) == 0 or (leverage > 1 - 1e-9).any():
            continue
        fixed, factor = _fit_line(values, cost)
        # Residual over (1 − leverage) is the leave-one-out residual of a linear fit.
        predicted = cost - (cost - (fixed + factor * values)) / (1 - leverage)
        error = _smape(predicted, cost)
        if error < best_error and (np.abs(factor * values) / cost).max() >= MIN_TERM_SHARE:
            best, best_error = (power, log_power), error
    return best


def _fit_line(values: Floats, cost: Floats) -> tuple[float, float]:
    factor, fixed = np.polyfit(values, cost, 1)
    return float(fixed), float(factor)


def _smape(predicted: Floats, cost: Floats) -> float:
    """Return the symmetric mean absolute percentage error."""
    return float(np.mean(2 * np.abs(predicted - cost) / (np.abs(predicted) + np.abs(cost))))
