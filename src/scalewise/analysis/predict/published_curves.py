"""How published curves went on beyond the scale that another has reached so far.

Teaching material beside a prediction, and no part of it: what a prediction knows of
all published curves it has learned already.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from scalewise.analysis.measure import ScalingCurve
from scalewise.analysis.predict.prediction import Prediction
from scalewise.analysis.predict.series import Metric, Series, of_curve, series
from scalewise.catalog.curves import PublishedCurve


@dataclass(frozen=True)
class Followed:
    """What a published curve kept of each doubling, from one count to its largest."""

    curve: PublishedCurve
    first: int
    last: int
    kept: float
    """Of a doubling of devices, as a share: 1 is twice the throughput, or half the time."""


@dataclass(frozen=True)
class Others:
    """How some curves went on, and how one is predicted to."""

    growth: float
    """The scale that the predicted curve has reached: its largest count over its smallest."""
    looked: int
    """Curves that were looked at."""
    followed: tuple[Followed, ...]
    """Those that go on beyond that scale, the worst first."""
    last: int
    """The largest count that was measured of the predicted curve."""
    value: float
    """What was measured there."""
    metric: Metric
    predicted: float | None
    """What the prediction keeps of each doubling, up to its farthest count."""

    @property
    def kept(self) -> tuple[float, float, float] | None:
        """The least, the median and the most of what they kept per doubling."""
        shares = [each.kept for each in self.followed]
        return (min(shares), median(shares), max(shares)) if shares else None

    def at(self, devices: int) -> tuple[float, float, float] | None:
        """Return what this many would do if it went on as they did: worst, median, best."""
        if self.kept is None:
            return None
        grown = _doublings(self.last, devices)
        times = [2**grown * share**grown for share in self.kept]
        if self.metric == "time":
            times = [1 / each for each in times]
        worst, middle, best = (self.value * each for each in times)
        return worst, middle, best


def others(found: Prediction, curves: Sequence[PublishedCurve]) -> Others:
    """Return how these went on beyond the growth that was measured of a predicted curve."""
    points = _main(found.curve)
    growth = float(points.last / points.devices[0])
    known = [_followed(each, growth) for each in curves if _alike(each, points)]
    return Others(
        growth=growth,
        looked=len(curves),
        followed=tuple(sorted((each for each in known if each), key=lambda each: each.kept)),
        last=int(points.last),
        value=float(points.values[-1]),
        metric=points.metric,
        predicted=_predicted(found, points),
    )


def _alike(curve: PublishedCurve, points: Series) -> bool:
    """Say whether a curve has the same metric and, as far as both tell, the same scaling."""
    rules = {curve.scaling, points.scaling} - {None}
    return curve.metric == points.metric and len(rules) < 2 and not curve.suspect


def efficiency(curve: PublishedCurve) -> dict[int, float]:
    """Return the efficiency of every point against the smallest."""
    points = as_series(curve)
    shares = points.cost[0] / points.cost
    return {int(count): float(share) for count, share in zip(points.devices, shares)}


def as_series(curve: PublishedCurve) -> Series:
    """Return a published curve as predictions see one."""
    counts, values = zip(*curve.points)
    metric: Metric = "time" if curve.metric == "time" else "throughput"
    return series(counts, values, metric, curve.scaling, curve.devices_per_node)


def _doublings(fewer: float, more: float) -> float:
    return math.log2(more / fewer)


def _main(curve: ScalingCurve) -> Series:
    """Return what a curve is predicted by: its throughput, or its time."""
    metrics: tuple[Metric, ...] = ("throughput", "time")
    found = [of_curve(curve, metric) for metric in metrics]
    return next(each for each in found if each and len(each.devices) > 1)


def _followed(curve: PublishedCurve, growth: float) -> Followed | None:
    shares = efficiency(curve)
    smallest, largest = min(shares), max(shares)
    reached = [count for count in shares if smallest * growth <= count < largest]
    if not reached:
        return None
    doublings = _doublings(reached[0], largest)
    return Followed(
        curve, reached[0], largest, (shares[largest] / shares[reached[0]]) ** (1 / doublings)
    )


def _predicted(found: Prediction, points: Series) -> float | None:
    """Return what is kept per doubling, from the last measurement to the farthest prediction."""
    far = found.points[-1]
    told = far.throughput if points.metric == "throughput" else far.time
    if told is None or far.devices <= points.last:
        return None
    doublings = _doublings(points.last, far.devices)
    gained = told.value / float(points.values[-1])
    gained = gained if points.metric == "throughput" else 1 / gained
    return float((gained / 2**doublings) ** (1 / doublings))
