"""The start-up of a table's jobs, which have no spans: T(N) = start(N) + work / X(N), fitted to its
times T and throughputs X. Overhead, advice, predictions and full runs all use this one fit.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scalewise.analysis.measure.point import Point

Floats = NDArray[np.float64]

MIN_POINTS = 3
"""Two points determine start and work, but do not show whether the formula holds."""
MIN_POINTS_GROWING = 4
"""Points needed to separate a start that grows with devices from a fixed one."""


@dataclass(frozen=True, slots=True)
class TableStart:
    """Start and work of a table with times and throughputs: T(N) = start(N) + work / X(N)."""

    fixed: float
    work: float
    """Samples of the measured job."""
    growing: float
    error: float = 0.0
    """Root mean square of the relative errors of the fitted times."""

    def start(self, devices: int) -> float:
        """Return the seconds of the start, which may grow with the number of devices."""
        return self.fixed + self.growing * math.log2(devices)


def fit_table_start(points: Sequence[Point], min_points: int = MIN_POINTS) -> TableStart | None:
    """Fit the start of a table's jobs; None without times and throughputs of enough points, or if
    the formula does not hold: no work, or a start as long as a measured time.
    """
    rows = [
        (float(point.devices), point.throughput.value, point.time.value)
        for point in points
        if point.throughput and point.time
    ]
    # A table with samples has throughputs computed from its times: they show no start.
    if len(rows) < min_points or any(point.samples is not None for point in points):
        return None
    devices, throughputs, times = np.array(rows).T
    if np.ptp(throughputs) < 1e-9 * throughputs.max():
        return None
    terms = [np.ones_like(times), 1 / throughputs, np.log2(devices)]
    if len(rows) < MIN_POINTS_GROWING:
        del terms[2]
    columns = np.stack(terms, axis=1)
    parameters = nonnegative_least_squares(columns, times)
    error = float(np.sqrt(np.square(columns @ parameters / times - 1).mean()))
    fixed, work, growing = (*map(float, parameters), 0.0)[:3]  # 0 for a deleted term.
    fit = TableStart(fixed, work, growing, error)
    is_possible = all(fit.start(int(count)) < time for count, _, time in rows)
    return fit if work > 0 and is_possible else None


def nonnegative_least_squares(columns: Floats, target: Floats) -> Floats:
    """Return coefficients ≥ 0 with the least squared relative errors; tries all column subsets."""
    count = columns.shape[1]
    best, best_error = np.zeros(count), math.inf
    for size in range(1, count + 1):
        for subset in map(list, itertools.combinations(range(count), size)):
            relative = columns[:, subset] / target[:, None]
            solution = np.linalg.lstsq(relative, np.ones(len(target)), rcond=None)[0]
            if (solution < 0).any():
                continue
            error = float(np.square(columns[:, subset] @ solution / target - 1).sum())
            if error < best_error * (1 - 1e-9) - 1e-24:  # Better by more than rounding.
                best, best_error = np.zeros(count), error
                best[subset] = solution
    return best
