"""What laws are fitted to: the cost of a unit of work, in device-seconds, against devices.

Throughput X and time T are two faces of it: cost = N / X = N · T, with the
sample or the whole job as the unit of work. Perfect scaling is a constant cost;
every loss makes it grow. So one law serves strong and weak scaling alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from scalewise.analysis.measure import Point, ScalingCurve
from scalewise.analysis.measure.curve import SAME_WORK_TOLERANCE
from scalewise.errors import NotEnoughData

Floats = NDArray[np.float64]
Metric = Literal["throughput", "time"]
Kind = Literal["weak", "other"]
"""Curves that lose alike: throughput under weak scaling, and all others."""
KINDS: tuple[Kind, ...] = ("weak", "other")


@dataclass(frozen=True, eq=False)
class Series:
    """One metric of a curve, as costs; device counts grow and none appears twice."""

    devices: Floats
    cost: Floats
    metric: Metric = "throughput"
    scaling: str | None = None
    per_node: int | None = None

    @property
    def kind(self) -> Kind:
        return "weak" if self.metric == "throughput" and self.scaling == "weak" else "other"

    @property
    def last(self) -> float:
        """The largest number of devices that was measured."""
        return float(self.devices[-1])

    @property
    def values(self) -> Floats:
        """Throughputs or times, as they were measured."""
        return self.back(self.devices, self.cost)

    def back(self, devices: Floats, cost: Floats) -> Floats:
        """Return the metric that these costs mean."""
        return devices / cost if self.metric == "throughput" else cost / devices

    def nodes(self, devices: Floats) -> Floats:
        """Return how many nodes that many devices fill; one, if that is not known."""
        return np.ceil(devices / self.per_node) if self.per_node else np.ones_like(devices)

    def inside(self, devices: Floats) -> Floats:
        """Return how many of the devices share a node; all of them, if that is not known."""
        return np.minimum(devices, self.per_node) if self.per_node else devices

    def leaves_node(self, devices: Floats) -> NDArray[np.bool_]:
        """Say which of these counts need a network that no measurement has seen."""
        return (self.nodes(devices) > 1) & bool(self.nodes(self.devices)[-1] == 1)

    def only(self, chosen: NDArray[np.bool_]) -> "Series":
        """Return some of the points."""
        return replace(self, devices=self.devices[chosen], cost=self.cost[chosen])

    def plus(self, devices: float, cost: float) -> "Series":
        """Return the series with one more point."""
        order = np.argsort(joined := np.append(self.devices, devices))
        return replace(self, devices=joined[order], cost=np.append(self.cost, cost)[order])


def series(
    counts: Sequence[float],
    values: Sequence[float],
    metric: Metric = "throughput",
    scaling: str | None = None,
    per_node: int | None = None,
) -> Series:
    """Return measured values as costs.

    >>> series([1, 2], [100.0, 160.0]).cost
    array([0.01  , 0.0125])
    """
    devices, found = np.array(counts, float), np.array(values, float)
    cost = devices / found if metric == "throughput" else devices * found
    return Series(devices, cost, metric, scaling, per_node)


def of_curve(curve: ScalingCurve, metric: Metric) -> Series | None:
    """Return one metric of a curve, or nothing if it was not measured.

    Of two topologies with as many devices, the one with fewer nodes counts. Times
    of unlike work are no curve.
    """
    if metric == "time" and not _alike([p.samples for p in curve.points if p.time]):
        return None

    def value(point: Point) -> float | None:
        found = point.throughput if metric == "throughput" else point.time
        return found.value if found else None

    known: dict[int, float] = {}
    for point in curve.points:
        if (found := value(point)) is not None:
            known.setdefault(point.devices, found)
    if not known:
        return None
    return series(list(known), list(known.values()), metric, curve.scaling, curve.devices_per_node)


def _alike(samples: Sequence[int | None]) -> bool:
    """Say whether all did the same work; unknown of all is taken so."""
    known = [count for count in samples if count is not None]
    if len(known) < len(samples):
        return not known
    return not known or max(known) - min(known) <= SAME_WORK_TOLERANCE * max(known)


def need(points: Series, count: int, why: str) -> None:
    """Refuse a series with fewer points than a question needs."""
    if len(points.devices) < count:
        raise NotEnoughData(
            f"{why} needs {count} device counts, got {len(points.devices)}",
            hint="measure one more, twice as large as the largest",
        )
