"""The laws of the textbooks, and ours, one file each: each fits itself and prints as its formula.

They are parts (``scalewise.laws``), found by name as a stranger's are: a function
from a :class:`~scalewise.analysis.predict.series.Series` to a :class:`Fit`.
None of them makes the prediction alone; they are shown beside it.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from scalewise.analysis.measure import Estimate
from scalewise.analysis.measure.estimate import student_t_quantile
from scalewise.analysis.number_format import format_number
from scalewise.analysis.predict.series import Floats, Series

Solve = Callable[[Series], Mapping[str, float]]
"""Finds the parameters of a law."""
Cost = Callable[[Mapping[str, float], Floats], Floats]
"""Gives the cost that a law with these parameters has at these counts."""


@dataclass(frozen=True, eq=False)
class Fit:
    """A law that was fitted: its formula, its parameters, and how far it was measured."""

    law: str
    formula: str
    parameters: Mapping[str, Estimate]
    points: Series = field(repr=False)
    cost: Callable[[Floats], Floats] = field(repr=False)

    def __str__(self) -> str:
        return self.formula

    def value(self, devices: float) -> float:
        """Return the throughput or the time that the law gives."""
        at = np.array([float(devices)])
        return float(self.points.back(at, self.cost(at))[0])

    @property
    def error(self) -> float:
        """The mean error at the points it was fitted to, as a share."""
        ratio = self.cost(self.points.devices) / self.points.cost
        return float(np.abs(np.log(ratio)).mean())

    def reach(self, devices: float) -> float:
        """Return how many times beyond the largest measurement this many devices are."""
        return devices / self.points.last


def fitted(law: str, points: Series, solve: Solve, cost: Cost, formula: str) -> Fit:
    """Return the law with its parameters, and their names in ``formula`` filled in.

    Intervals are from leaving out one point at a time (the jackknife); there are
    none where no point can be spared.
    """
    found = dict(solve(points))
    spare = len(points.devices) - len(found)
    without: list[Mapping[str, float]] = []
    if spare > 0:
        places = np.arange(len(points.devices))
        without = [solve(points.only(places != place)) for place in places]
    parameters = {
        name: _with_interval(value, [each[name] for each in without], spare)
        for name, value in found.items()
    }
    least = 1e-3 * points.cost.min()  # A term that falls must not reach 0.
    return Fit(
        law=law,
        formula=formula.format(**{name: format_number(value) for name, value in found.items()}),
        parameters=parameters,
        points=points,
        cost=lambda at: np.maximum(cost(found, at), least),
    )


def _with_interval(value: float, others: Sequence[float], freedom: int) -> Estimate:
    if not others:
        return Estimate(value)
    count = len(others)
    error = math.sqrt((count - 1) / count * np.square(np.array(others) - np.mean(others)).sum())
    half = student_t_quantile(freedom) * error
    return Estimate(value, value - half, value + half, count)


def face(points: Series) -> tuple[str, str]:
    """Return how a formula begins: throughput, or time, and the cost in terms of it."""
    return ("X(N)", "N/X(N)") if points.metric == "throughput" else ("T(N)", "N·T(N)")


def nonnegative(terms: Floats, wanted: Floats) -> Floats:
    """Return coefficients from 0 up with the least relative squares.

    There are few terms, so every choice of them is tried.
    """
    count = terms.shape[1]
    best, least = np.zeros(count), math.inf
    for size in range(1, count + 1):
        for chosen in map(list, itertools.combinations(range(count), size)):
            rows = terms[:, chosen] / wanted[:, None]
            found = np.linalg.lstsq(rows, np.ones(len(wanted)), rcond=None)[0]
            if (found < 0).any():
                continue
            missed = float(np.square(terms[:, chosen] @ found / wanted - 1).sum())
            if missed < least * (1 - 1e-9) - 1e-24:
                best, least = np.zeros(count), missed
                best[chosen] = found
    return best
