"""The default predictor: the trend and the machine models, averaged as logarithms of the cost.

The trend is a constant loss per doubling; a machine model is one random cost formula. Their errors
partly cancel, so the mean errs less than either. The interval is the 90 % interval of the machine
models, moved to the mean. Its width is multiplied by the factor at which such intervals contained
90 % of published points, and is increased where the two estimates disagree.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from scalewise.analysis.measure import Estimate
from scalewise.analysis.number_format import format_number
from scalewise.analysis.predict.downsample import MAX_POINTS, spread_indices
from scalewise.analysis.predict.empirical_prior import Trend, expected_trend
from scalewise.analysis.predict.learned import Learned, load_learned
from scalewise.analysis.predict.posterior import DRAWS, posterior_quantiles
from scalewise.analysis.predict.series import Floats, Series, require_points


@dataclass(frozen=True, eq=False)
class Forecast:
    """The logarithm of the predicted cost (see ``series``) at each device count of ``at``."""

    points: Series
    """The measurements."""
    at: Floats
    middle: Floats
    low: Floats
    high: Floats
    trend: Trend
    by_trend: Floats
    """The first of the two estimates: the trend's (``empirical_prior``)."""
    by_machines: Floats
    """The second of the two estimates: the machine models' (``posterior``)."""
    trend_weight: float

    def __str__(self) -> str:
        """Return the formula; its factor "models" is the estimate of the machine models."""
        weight, last = self.trend_weight, f"{self.points.last:.0f}"
        trend = f"trend = {math.exp(-self.trend.loss):.3f}^log2(N/{last})"
        mean = f"trend^{weight:.2f} models^{1 - weight:.2f}"
        value = format_number(float(self.points.values[-1]))
        if self.points.metric == "throughput":
            return f"X(N) = {value} N/{last} · {mean}, {trend}"
        return f"T(N) = {value} {last}/N / ({mean}), {trend}"

    @property
    def width(self) -> Floats:
        """Width of each interval: the logarithm of high / low."""
        return self.high - self.low

    def estimates(self) -> tuple[Estimate, ...]:
        """Return the throughput or time at each device count, with its interval."""
        costs = np.exp([self.low, self.middle, self.high])
        # A high cost is a low throughput.
        low, value, high = np.sort(self.points.to_metric(self.at, costs), axis=0).tolist()
        count = len(self.points.devices)
        return tuple(Estimate(*numbers, count) for numbers in zip(value, low, high))

    def efficiencies(self, index: int) -> tuple[float, float, float]:
        """Return cost(last) / cost(at[index]) by the mean, by the trend, by the machine models."""
        mean, trend, models = (
            math.exp(math.log(self.points.cost[-1]) - float(log_cost[index]))
            for log_cost in (self.middle, self.by_trend, self.by_machines)
        )
        return mean, trend, models


def forecast(
    points: Series, at: Floats, learned: Learned | None = None, *, seed: int = 0, draws: int = DRAWS
) -> Forecast:
    """Return the expected cost at these device counts, from at least two measured points."""
    require_points(points, 2, "a prediction")
    at = np.asarray(at, float)
    learned = learned or load_learned()[points.kind]
    trend = expected_trend(points, learned)
    low, median, high = _quantiles(points, at.tobytes(), learned, seed, draws)
    below, above = median - low, high - median
    is_beyond = at > points.last
    median = np.where(is_beyond, np.maximum(median, _min_log_cost(points)), median)
    # The trend starts at the last point. Up to that point only the machine models are used.
    by_trend = np.where(is_beyond, trend.log_cost(points, at), median)
    mean = learned.trend_weight * by_trend + (1 - learned.trend_weight) * median
    disagreement, factor = np.abs(by_trend - median) / 2, learned.interval_factor
    return Forecast(
        points=points,
        at=at,
        middle=mean,
        low=mean - np.hypot(factor * below, disagreement),
        high=mean + np.hypot(factor * above, disagreement),
        trend=trend,
        by_trend=by_trend,
        by_machines=median,
        trend_weight=learned.trend_weight,
    )


def _min_log_cost(points: Series) -> float:
    """Return the least logarithm of the cost that is predicted beyond the last point: that of the
    last point. Machine models that explain a steep loss badly expect part of it to come back, and
    more devices do not make each one faster. A cost that fell at the last step may fall further.
    """
    previous, last = np.log(points.cost[-2:])
    return float(last) if last >= previous else -math.inf


@lru_cache(maxsize=64)  # Summary, advice and prediction of a curve ask for the same numbers.
def _quantiles(points: Series, at_bytes: bytes, learned: Learned, seed: int, draws: int) -> Floats:
    """Return the 5 %, 50 % and 95 % quantiles of the machine models' log cost, one row each. For
    many device counts, which increase, those between are interpolated.
    """
    at = np.frombuffer(at_bytes)
    knots = at if len(at) <= MAX_POINTS else at[spread_indices(at, MAX_POINTS)]
    quantiles = posterior_quantiles(points, knots, learned, (0.05, 0.5, 0.95), seed, draws)
    if knots is at:
        return quantiles
    return np.stack([np.interp(np.log(at), np.log(knots), row) for row in quantiles])
