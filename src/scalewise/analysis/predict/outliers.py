"""Find outliers: measured points unusually far from what all other points predict. The worst point
is removed; then the remaining points are compared with each other again. In a series of many points
only those far from their neighbours are compared, each with a part of the others.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from scalewise.analysis.predict.downsample import MAX_POINTS, spread_indices
from scalewise.analysis.predict.forecast import forecast
from scalewise.analysis.predict.laws import complete
from scalewise.analysis.predict.series import Series

DRAWS = 2048  # Machine models per forecast.
MIN_POINTS = 5
"""With fewer points it cannot be decided which one is the outlier."""
MIN_ERROR = 0.15
"""Points within this error, a logarithm (about 15 %), are never outliers."""
TIME_ERROR_RATIO = 5.0
"""A time is an outlier if it errs this many times as much as the other points on average."""
THROUGHPUT_HALF_WIDTHS = 2.0
"""A throughput is an outlier if it errs by this many half-widths of its predicted interval."""
MAX_SUSPECTS = 32
"""Points of a long series that are compared: those farthest from their neighbours."""
NEIGHBOURS = 16
"""Points of a long series that a suspect is compared with, the nearest; and as many of all."""
INTERPOLATIONS = 4
"""Pairs of neighbours on both sides that a point of a long series is interpolated from."""


@dataclass(frozen=True, slots=True)
class Outlier:
    """A point, its measured value, and the value expected from the other points."""

    devices: int
    metric: str
    measured: float
    expected: float
    law: str = ""
    """The formula fitted to the other points; empty for a throughput, which is forecast instead."""


Judge = Callable[[Series, Series], tuple[float, Outlier]]
"""Compares the second series, of one point, with the first; the point is an outlier above 1."""


def find_outliers(points: Series) -> list[Outlier]:
    """Return the points that the other points do not predict, the worst first."""
    return list(_find_outliers(points))


@lru_cache(maxsize=64)  # Doubts and predictions of a curve ask for the same ones.
def _find_outliers(points: Series) -> tuple[Outlier, ...]:
    judge = _judge_time if points.metric == "time" else _judge_throughput
    outliers: list[Outlier] = []
    if len(points.devices) > MAX_POINTS:
        return tuple(_find_in_many(points, judge))
    while len(points.devices) >= MIN_POINTS:
        indices = np.arange(len(points.devices))
        scored = [
            judge(points.select(indices != index), points.select(indices == index))
            for index in indices
        ]
        score, worst = max(scored, key=lambda pair: pair[0])
        if score <= 1:
            break
        outliers.append(worst)
        points = points.select(points.devices != worst.devices)
    return tuple(outliers)


def _find_in_many(points: Series, judge: Judge) -> list[Outlier]:
    """Return the outliers of a long series, the worst first. After a pass over the suspects that
    found some, the others are compared again, without these.
    """
    outliers: list[Outlier] = []
    indices = np.arange(len(points.devices))
    remaining = np.ones(len(indices), bool)
    suspects, is_changed = _suspects(points), True
    while is_changed:
        is_changed = False
        for index in [index for index in suspects if remaining[index]]:
            others = points.select(_compared(points, remaining, index))
            score, suspect = judge(others, points.select(indices == index))
            if score > 1:
                outliers.append(suspect)
                remaining[index] = False
                is_changed = True
    return sorted(outliers, key=lambda row: -abs(math.log(row.measured / row.expected)))


def _suspects(points: Series) -> list[int]:
    """Return the indices of the points that are farthest from their neighbours, the worst first.
    The expected cost is the median of lines through two points at distance 1, 2, …: one on each
    side, or, at an end, both on the same side.
    """
    log_devices, log_cost = np.log(points.devices), np.log(points.cost)
    count = len(log_devices)
    indices = np.arange(count)
    lines = []
    for distance in range(1, INTERPOLATIONS + 1):
        first, second = indices - distance, indices + distance
        first = np.where(first < 0, indices + 2 * distance, first)
        second = np.where(second >= count, indices - 2 * distance, second)
        share = (log_devices - log_devices[first]) / (log_devices[second] - log_devices[first])
        lines.append(log_cost[first] + share * (log_cost[second] - log_cost[first]))
    distances = np.abs(log_cost - np.median(lines, axis=0))
    worst = np.argsort(-distances, kind="stable")[:MAX_SUSPECTS]
    return [int(index) for index in worst if distances[index] > MIN_ERROR / 2]


def _compared(points: Series, remaining: NDArray[np.bool_], index: int) -> NDArray[np.bool_]:
    """Return which points a suspect is compared with: the nearest, and as many of all of them,
    evenly spread in the logarithm of the device count.
    """
    others = np.flatnonzero(remaining)
    others = others[others != index]
    nearest = others[np.argsort(np.abs(others - index), kind="stable")[:NEIGHBOURS]]
    spread = others[spread_indices(points.devices[others], NEIGHBOURS)]
    compared = np.zeros(len(remaining), bool)
    compared[nearest] = compared[spread] = True
    return compared


def _judge_time(remaining: Series, point: Series) -> tuple[float, Outlier]:
    """Return the time's error relative to the largest allowed error, and the point as Outlier."""
    fit = complete.fit(remaining)
    devices = int(point.devices[0])
    error = abs(float(np.log(point.cost / fit.cost(point.devices))[0]))
    outlier = Outlier(devices, "time", float(point.values[0]), fit.value(devices), fit.formula)
    return error / max(MIN_ERROR, TIME_ERROR_RATIO * fit.error), outlier


def _judge_throughput(remaining: Series, point: Series) -> tuple[float, Outlier]:
    """Return the same pair for a throughput, expected by the forecast from the other points."""
    result = forecast(remaining, point.devices, draws=DRAWS)
    error = float(np.log(point.cost)[0] - result.middle[0])
    half_width = (result.high - result.middle if error > 0 else result.middle - result.low)[0]
    expected = float(point.to_metric(point.devices, np.exp(result.middle))[0])
    outlier = Outlier(int(point.devices[0]), "throughput", float(point.values[0]), expected)
    return abs(error) / max(MIN_ERROR, THROUGHPUT_HALF_WIDTHS * half_width), outlier
