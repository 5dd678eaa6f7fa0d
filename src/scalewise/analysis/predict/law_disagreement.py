"""Where the prediction lies outside every textbook law that fits the measurements, and why."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from scalewise.analysis.predict.forecast import Forecast
from scalewise.analysis.predict.laws import Fit
from scalewise.analysis.predict.prediction import Prediction

MAX_FIT_ERROR = 0.03
"""A law fits if its mean relative error at the measured points is at most this."""
MIN_DIFFERENCE = 0.01
"""A prediction this close to a law, as a share, agrees with it."""

Reason = Literal["network", "spans", "outlier", "last point", "typical loss", "machine models"]
"""network: the first scale of several nodes; spans: a time that is predicted span by span;
outlier: a point that does not fit the others; last point: the prediction starts at the last point,
which the laws miss; typical loss: the loss per doubling of published curves; machine models: their
costs that no law has.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LawDisagreement:
    """A prediction outside the range of all laws that fit. Its fields are keys of the JSON."""

    metric: str
    devices: int
    predicted: float
    low: float
    """The smallest value by a law that fits."""
    high: float
    """The largest value by a law that fits."""
    laws: int
    """The number of laws that fit."""
    reason: Reason
    expected_loss: float | None = None
    """With the reason typical loss: the expected loss per doubling, a logarithm of the cost."""
    measured_loss: float | None = None
    """With the reason typical loss: the measured loss per doubling."""

    @property
    def is_slower(self) -> bool:
        """Whether the prediction is a lower throughput, or a longer time, than all laws say."""
        return (self.predicted < self.low) == (self.metric == "throughput")


def law_disagreements(prediction: Prediction) -> list[LawDisagreement]:
    """Return a disagreement per metric, at the largest count beyond the measured ones."""
    beyond = [point for point in prediction.points if point.devices > prediction.main.last]
    return list(_disagreements(prediction, beyond[-1].devices)) if beyond else []


def _disagreements(prediction: Prediction, devices: int) -> Iterator[LawDisagreement]:
    point = prediction.at(devices)
    for metric, estimate in (("throughput", point.throughput), ("time", point.time)):
        laws = _fitting_laws(prediction, metric)
        if estimate is None or not laws:
            continue
        values = [fit.value(devices) for fit in laws]
        low, high, predicted = min(values), max(values), estimate.value
        if low * (1 - MIN_DIFFERENCE) <= predicted <= high * (1 + MIN_DIFFERENCE):
            continue
        is_slower = (predicted < low) == (metric == "throughput")
        forecast = next((f for f in prediction.forecasts if f.points.metric == metric), None)
        reason: Reason = "spans"
        if is_slower and point.unknown == "network":
            reason = "network"
        elif any(outlier.metric == metric for outlier in prediction.outliers):
            reason = "outlier"
        elif forecast:
            reason = _reason(forecast, laws, devices, is_slower=is_slower)
        trend = forecast.trend if forecast and reason == "typical loss" else None
        yield LawDisagreement(
            metric=metric,
            devices=devices,
            predicted=predicted,
            low=low,
            high=high,
            laws=len(laws),
            reason=reason,
            expected_loss=trend.loss if trend else None,
            measured_loss=trend.measured_loss if trend else None,
        )


def _fitting_laws(prediction: Prediction, metric: str) -> list[Fit]:
    # A law with as many parameters as points always fits.
    return [
        fit
        for fit in prediction.laws
        if fit.points.metric == metric
        and fit.error <= MAX_FIT_ERROR
        and len(fit.parameters) < len(fit.points.devices)
    ]


def _reason(forecast: Forecast, laws: Sequence[Fit], devices: int, *, is_slower: bool) -> Reason:
    """Return why a forecast costs more (``is_slower``), or less, than all laws say."""
    points, sign = forecast.points, 1 if is_slower else -1
    index = list(forecast.at).index(devices)

    def excess(log_cost: float, count: float) -> float:
        """Return by how much a log cost is above all laws, or below all if not ``is_slower``."""
        to_cost = count if points.metric == "time" else 1 / count
        log_laws = [
            math.log(fit.value(count) * to_cost) * (1 if points.metric == "time" else -1)
            for fit in laws
        ]
        return min(sign * (log_cost - log_law) for log_law in log_laws)

    total = excess(float(forecast.middle[index]), devices)
    if excess(math.log(points.cost[-1]), points.last) > total / 2:
        return "last point"
    trend, expected = forecast.trend, float(forecast.by_trend[index])
    differs = sign * (trend.loss - trend.measured_loss) > 0
    if differs and excess(expected, devices) >= excess(float(forecast.by_machines[index]), devices):
        return "typical loss"
    return "machine models"
