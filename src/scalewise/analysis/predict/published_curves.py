"""How published curves continued after the growth of the measured curve, for comparison with its
prediction. The growth of a curve is its largest device count divided by its smallest.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from scalewise.analysis.predict.prediction import Prediction
from scalewise.analysis.predict.series import Metric, Series, make_series
from scalewise.catalog.curves import PublishedCurve


@dataclass(frozen=True)
class Continuation:
    """How a published curve continued, from ``first`` devices to its ``last`` count."""

    curve: PublishedCurve
    first: int
    last: int
    retained: float
    """Mean efficiency retained per doubling: 1 is twice the throughput, or half the time."""


@dataclass(frozen=True)
class PublishedComparison:
    """How published curves continued, and how the measured curve is predicted to continue."""

    growth: float
    """The largest measured device count divided by the smallest."""
    curve_count: int
    """Number of published curves that were searched."""
    continuations: tuple[Continuation, ...]
    """Of the comparable curves that grew further than ``growth``; the least efficient first."""
    last: int
    """The largest measured device count."""
    value: float
    """The metric measured at ``last`` devices."""
    metric: Metric
    predicted: float | None
    """Predicted mean efficiency per doubling, from ``last`` to the largest predicted count."""

    @property
    def retained(self) -> tuple[float, float, float] | None:
        """Smallest, median and largest ``retained`` of the continuations."""
        shares = [continuation.retained for continuation in self.continuations]
        return (min(shares), median(shares), max(shares)) if shares else None

    def at(self, devices: int) -> tuple[float, float, float] | None:
        """Return worst, median, best value at ``devices`` if it continues as those curves did."""
        if self.retained is None:
            return None
        doublings = math.log2(devices / self.last)
        factors = [2**doublings * share**doublings for share in self.retained]
        if self.metric == "time":
            factors = [1 / factor for factor in factors]
        worst, middle, best = (self.value * factor for factor in factors)
        return worst, middle, best


def compare_published(
    prediction: Prediction, curves: Sequence[PublishedCurve]
) -> PublishedComparison:
    """Return how comparable published curves continued after the growth of the measured curve."""
    points = prediction.main
    growth = float(points.last / points.devices[0])
    # The same metric, and not different kinds of scaling (None is unknown).
    comparable = [
        curve
        for curve in curves
        if curve.metric == points.metric
        and len({curve.scaling, points.scaling} - {None}) < 2
        and not curve.suspect
    ]
    continuations = filter(None, (_continuation(curve, growth) for curve in comparable))
    target = prediction.points[-1]
    predicted = None
    estimate = target.throughput if points.metric == "throughput" else target.time
    if estimate is not None and target.devices > points.last:
        doublings = math.log2(target.devices / points.last)
        speedup = estimate.value / float(points.values[-1])
        speedup = speedup if points.metric == "throughput" else 1 / speedup
        predicted = float((speedup / 2**doublings) ** (1 / doublings))
    return PublishedComparison(
        growth=growth,
        curve_count=len(curves),
        continuations=tuple(sorted(continuations, key=lambda continued: continued.retained)),
        last=int(points.last),
        value=float(points.values[-1]),
        metric=points.metric,
        predicted=predicted,
    )


def efficiency(curve: PublishedCurve) -> dict[int, float]:
    """Return the efficiency at every device count, relative to the smallest."""
    points = as_series(curve)
    shares = points.cost[0] / points.cost
    return {int(count): float(share) for count, share in zip(points.devices, shares)}


def as_series(curve: PublishedCurve) -> Series:
    """Convert a published curve to a series of costs."""
    counts, values = zip(*curve.points)
    metric: Metric = "time" if curve.metric == "time" else "throughput"
    return make_series(counts, values, metric, curve.scaling, curve.devices_per_node)


def _continuation(curve: PublishedCurve, growth: float) -> Continuation | None:
    """Return the part from ``growth`` times the smallest count on; None if the curve ends there."""
    shares = efficiency(curve)
    smallest, largest = min(shares), max(shares)
    first = next((count for count in shares if smallest * growth <= count < largest), None)
    if first is None:
        return None
    doublings = math.log2(largest / first)
    retained = (shares[largest] / shares[first]) ** (1 / doublings)
    return Continuation(curve, first, largest, retained)
