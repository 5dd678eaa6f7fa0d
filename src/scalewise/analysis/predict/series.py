"""The cost in device-seconds that laws are fitted to. From a throughput X on N devices it is N / X
per sample; from a time T it is N · T per job. Under perfect scaling the cost is constant, so the
same law can describe strong and weak scaling.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from scalewise.analysis.measure import ScalingCurve
from scalewise.analysis.measure.curve import SAME_WORK_TOLERANCE
from scalewise.errors import NotEnoughData

Floats = NDArray[np.float64]
Metric = Literal["throughput", "time"]
Unknown = Literal["network", "node size"]
"""A property of larger scales that measurements of smaller ones may not show."""
Kind = Literal["weak", "other"]
"""Class of curves with common learned parameters: throughput under weak scaling, or any other."""
KINDS: tuple[Kind, ...] = ("weak", "other")


@dataclass(frozen=True, eq=False)
class Series:
    """One metric of a curve, as costs. Device counts increase strictly. Series of equal numbers are
    equal, so that what is computed from them can be cached.
    """

    devices: Floats
    cost: Floats
    metric: Metric = "throughput"
    scaling: str | None = None
    per_node: int | None = None  # Devices per node.

    @cached_property
    def _key(self) -> tuple[object, ...]:
        numbers = (self.devices.tobytes(), self.cost.tobytes())
        return (*numbers, self.metric, self.scaling, self.per_node)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Series) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def kind(self) -> Kind:
        return "weak" if self.metric == "throughput" and self.scaling == "weak" else "other"

    @property
    def last(self) -> float:
        """The largest measured device count."""
        return float(self.devices[-1])

    @property
    def values(self) -> Floats:
        """Throughputs or times, as they were measured."""
        return self.to_metric(self.devices, self.cost)

    def to_metric(self, devices: Floats, cost: Floats) -> Floats:
        """Convert costs back to throughputs or times."""
        return devices / cost if self.metric == "throughput" else cost / devices

    def nodes(self, devices: Floats) -> Floats:
        """Return the number of nodes for these counts; 1 if the devices per node are unknown."""
        return np.ceil(devices / self.per_node) if self.per_node else np.ones_like(devices)

    def node_count(self, devices: int) -> int | None:
        """Return the number of nodes for this count; None if the devices per node are unknown."""
        return -(-devices // self.per_node) if self.per_node else None

    def devices_in_node(self, devices: Floats) -> Floats:
        """Return the devices used per node; all devices if the devices per node are unknown."""
        return np.minimum(devices, self.per_node) if self.per_node else devices

    def leaves_node(self, devices: Floats) -> NDArray[np.bool_]:
        """Return for each count whether it needs several nodes while only one was measured."""
        return (self.nodes(devices) > 1) & bool(self.nodes(self.devices)[-1] == 1)

    def unknown(self, devices: float) -> Unknown | None:
        """Return the property of this scale that no measurement shows, if there is one."""
        if self.leaves_node(np.array([devices]))[0]:
            return "network"
        return "node size" if self.per_node is None and devices > self.last else None

    def select(self, mask: NDArray[np.bool_]) -> "Series":
        """Return the points where ``mask`` is true."""
        return replace(self, devices=self.devices[mask], cost=self.cost[mask])

    def with_point(self, devices: float, cost: float) -> "Series":
        """Return the series with one more point."""
        counts, costs = np.append(self.devices, devices), np.append(self.cost, cost)
        order = np.argsort(counts)
        return replace(self, devices=counts[order], cost=costs[order])


def make_series(
    counts: Sequence[float],
    values: Sequence[float],
    metric: Metric = "throughput",
    scaling: str | None = None,
    per_node: int | None = None,
) -> Series:
    """Convert measured values to costs.

    >>> make_series([1, 2], [100.0, 160.0]).cost
    array([0.01  , 0.0125])
    """
    devices, measured = np.array(counts, float), np.array(values, float)
    cost = devices / measured if metric == "throughput" else devices * measured
    return Series(devices, cost, metric, scaling, per_node)


def curve_series(curve: ScalingCurve, metric: Metric) -> Series | None:
    """Return one metric of a curve. None if it was not measured, or if it is time and the points
    did unequal work. Of two points with equal device counts, the first (fewer nodes) is used.
    """
    samples = [point.samples for point in curve.points if point.time]
    sample_counts = [count for count in samples if count is not None]
    # If the samples of no point are known, their work is assumed to be equal.
    same_work = not sample_counts or (
        len(sample_counts) == len(samples)
        and max(sample_counts) - min(sample_counts) <= SAME_WORK_TOLERANCE * max(sample_counts)
    )
    if metric == "time" and not same_work:
        return None
    values: dict[int, float] = {}
    for point in curve.points:
        estimate = point.throughput if metric == "throughput" else point.time
        if estimate is not None:
            values.setdefault(point.devices, estimate.value)
    if not values:
        return None
    return make_series(
        list(values), list(values.values()), metric, curve.scaling, curve.devices_per_node
    )


def require_points(points: Series, count: int, purpose: str) -> None:
    """Raise NotEnoughData if the series has fewer points than ``purpose`` needs."""
    if len(points.devices) < count:
        raise NotEnoughData(
            f"{purpose} needs {count} device counts, got {len(points.devices)}",
            hint="measure one more, twice as large as the largest",
        )
