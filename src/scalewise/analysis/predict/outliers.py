"""Find outliers: measured points unusually far from what all other points predict. The worst point
is removed; then the remaining points are compared with each other again.
"""

from dataclasses import dataclass

import numpy as np

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


@dataclass(frozen=True, slots=True)
class Outlier:
    """A point, its measured value, and the value expected from the other points."""

    devices: int
    metric: str
    measured: float
    expected: float
    law: str = ""
    """The formula fitted to the other points; empty for a throughput, which is forecast instead."""


def find_outliers(points: Series) -> list[Outlier]:
    """Return the points that the other points do not predict, the worst first."""
    judge = _judge_time if points.metric == "time" else _judge_throughput
    outliers: list[Outlier] = []
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
    return outliers


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
