"""Scaling laws, shown for comparison with the prediction. Each is a plugin (entry point
``scalewise.laws``): a function from a :class:`~scalewise.analysis.predict.series.Series` to a
:class:`Fit`. In formulas N is the device count, X(N) the throughput, T(N) the time.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from scalewise.analysis.measure import Estimate
from scalewise.analysis.measure.estimate import student_t_quantile
from scalewise.analysis.number_format import format_number
from scalewise.analysis.predict.series import Floats, Series

Parameters = Mapping[str, float]
"""Values of a law's parameters, by the names that its formula uses."""
Solve = Callable[[Series], Parameters]
"""Returns the parameters with which a law fits measured points best."""
Cost = Callable[[Parameters, Floats], Floats]
"""Returns the cost by a law with these parameters at these device counts."""


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted law: its formula, its parameters with intervals, and the points it is fitted to."""

    law: str
    formula: str
    parameters: Mapping[str, Estimate]
    points: Series = field(repr=False)
    cost: Callable[[Floats], Floats] = field(repr=False)

    def __str__(self) -> str:
        return self.formula

    def value(self, devices: float) -> float:
        """Return the throughput or the time on this many devices by the law."""
        at = np.array([float(devices)])
        return float(self.points.to_metric(at, self.cost(at))[0])

    @property
    def error(self) -> float:
        """Mean relative error at the fitted points."""
        ratio = self.cost(self.points.devices) / self.points.cost
        return float(np.abs(np.log(ratio)).mean())


def fit_law(law: str, points: Series, solve: Solve, cost: Cost, formula: str) -> Fit:
    """Return the fitted law. ``formula`` has its parameters' names in braces. With more points
    than parameters, each parameter has an interval by the jackknife (refits without one point).
    """
    solution = dict(solve(points))
    degrees_of_freedom = len(points.devices) - len(solution)
    parameters = {name: Estimate(value) for name, value in solution.items()}
    if degrees_of_freedom > 0:
        indices = np.arange(len(points.devices))
        refits = [solve(points.select(indices != index)) for index in indices]
        count, quantile = len(refits), student_t_quantile(degrees_of_freedom)
        for name, value in solution.items():
            values = np.array([refit[name] for refit in refits])
            squares = np.square(values - values.mean()).sum()
            half_width = quantile * math.sqrt((count - 1) / count * squares)
            parameters[name] = Estimate(value, value - half_width, value + half_width, count)
    min_cost = 1e-3 * points.cost.min()  # A falling cost must stay above 0 when extrapolated.
    return Fit(
        law=law,
        formula=formula.format(**{name: format_number(value) for name, value in solution.items()}),
        parameters=parameters,
        points=points,
        cost=lambda at: np.maximum(cost(solution, at), min_cost),
    )


def cost_symbol(points: Series) -> str:
    """Return the cost as formulas write it, in terms of the measured metric."""
    return "N/X(N)" if points.metric == "throughput" else "N·T(N)"
