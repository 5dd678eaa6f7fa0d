"""A scaling curve: its runs differ only in topology, repeat and the batch size that weak or strong
scaling requires. Each point is compared with the smallest (the baseline) and the previous one.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from scalewise.analysis.measure.doubt import Doubt, DoubtKind
from scalewise.analysis.measure.estimate import Estimate, student_t_quantile
from scalewise.analysis.measure.point import Point
from scalewise.errors import NotEnoughData

SAME_WORK_TOLERANCE = 0.01
"""Times are compared only if the runs' numbers of samples differ by at most this share."""


@dataclass(frozen=True, kw_only=True)
class ScalingCurve:
    """Points by number of devices, baseline first."""

    study: str
    points: tuple[Point, ...]
    where: Mapping[str, Any] = field(default_factory=dict)
    """The varied settings that distinguish this curve from others of its study."""
    scaling: str | None = None
    """How the batch grows with devices: ``weak`` or ``strong``; None if unknown."""
    work: str | None = None
    """What a run does in total, as text: ``3 epochs over the same data``."""
    conditions: Mapping[str, Any] = field(default_factory=dict)
    """Settings that are equal in all runs; curves with different conditions are not comparable."""
    unit: str = "samples"
    devices_per_node: int | None = None
    """Devices of a full node; None if unknown."""
    warnings: tuple[str | Doubt, ...] = ()
    not_correct: tuple[str, ...] = ()
    """Sentences about faults that make the training incorrect; empty if none was found."""

    def __post_init__(self) -> None:
        if not self.points:
            raise NotEnoughData(f"{self.study}: a curve needs at least one point")

    @property
    def baseline(self) -> Point:
        """The smallest point, with which all points are compared."""
        return self.points[0]

    @property
    def name(self) -> str:
        """The study with this curve's varied settings."""
        settings = ", ".join(f"{key} {value}" for key, value in self.where.items())
        return f"{self.study} ({settings})" if settings else self.study

    @property
    def turns_at(self) -> int | None:
        """The first number of devices at which overhead is more than half of the complete time."""
        dominated = [point.devices for point in self.points if point.regime == "overhead"]
        return dominated[0] if dominated else None


def condition_differences(curves: Sequence[ScalingCurve]) -> list[Doubt]:
    """Return a doubt for each condition in which curves differ, except settings that vary."""
    by_curve = []
    for curve in curves:
        conditions = {"scaling": curve.scaling, "work": curve.work, **curve.conditions}
        by_curve.append({k: v for k, v in conditions.items() if k not in curve.where})
    shared = [name for name in by_curve[0] if all(name in conditions for conditions in by_curve)]
    return find_differences(
        "curves differ", [{name: conditions[name] for name in shared} for conditions in by_curve]
    )


def find_differences(kind: DoubtKind, items: Sequence[Mapping[str, Any]]) -> list[Doubt]:
    """Return a doubt for each key whose value is not the same in all items."""
    values = {name: [*dict.fromkeys(str(item[name]) for item in items)] for name in items[0]}
    return [
        Doubt(kind, {"name": name, "values": texts})
        for name, texts in values.items()
        if len(texts) > 1
    ]


def compare(curve: ScalingCurve) -> ScalingCurve:
    """Return the curve with every point compared to the baseline and to the previous point."""
    base = curve.baseline
    fixed_seconds = _fixed_seconds(curve.points)
    by_time = not any(point.throughput for point in curve.points)
    predecessors: list[Point | None] = [None, *curve.points]
    points = []
    for point, previous in zip(curve.points, predecessors):
        timed = _compare_times(point, base, previous, fixed_seconds)
        points.append(replace(timed, **_compare_speed(point, base, previous, by_time)))
    return replace(curve, points=tuple(points))


def _compare_times(point: Point, base: Point, previous: Point | None, fixed: float | None) -> Point:
    """Return the point with compared times and accuracy; ``fixed`` is from ``_fixed_seconds``."""
    equal_work = same_work(point, base)
    figures = {"samples": point.samples, "baseline": base.samples}
    work_doubts = [] if equal_work else [Doubt("work differs", figures)]
    overhead = point.overhead
    if overhead is None and fixed is not None and point.time:
        overhead = fixed / point.time.value
    return replace(
        point,
        speedup_time=ratio(base.time, point.time) if equal_work else None,
        speedup_epoch=ratio(base.epoch_time, point.epoch_time) if equal_work else None,
        saved_previous=_saved_share(previous, point) if previous else None,
        saved_baseline=_saved_share(base, point) if point is not base else None,
        overhead=overhead,
        warnings=(*point.warnings, *work_doubts, *_quality_doubts(point, base)),
    )


def _compare_speed(
    point: Point, base: Point, previous: Point | None, by_time: bool
) -> dict[str, Any]:
    """Return the fields that follow from the speedup, which is by throughput or ``by_time``."""

    def speedup_over(other: Point) -> Estimate | None:
        if not by_time:
            return ratio(point.throughput, other.throughput)
        return ratio(other.time, point.time) if same_work(point, other) else None

    growth = point.devices / base.devices
    speedup = speedup_over(base)
    added_throughput = None
    if previous and point.throughput and previous.throughput:
        added_throughput = point.throughput.value - previous.throughput.value
    return {
        "ideal": base.throughput * growth if base.throughput else None,
        "speedup": None if by_time else speedup,
        "efficiency": speedup * (1 / growth) if speedup else None,
        "serial_fraction": speedup.through(lambda s: (1 / s - 1 / growth) / (1 - 1 / growth))
        if speedup and growth > 1
        else None,
        "gain": _per_doubling(speedup_over(previous), point.devices / previous.devices)
        if previous
        else None,
        "gain_absolute": added_throughput,
    }


def ratio(dividend: Estimate | None, divisor: Estimate | None) -> Estimate | None:
    """Return a ratio of estimates; exactly 1 for an estimate divided by itself (the baseline)."""
    if dividend is None or divisor is None:
        return None
    if dividend is divisor:
        bound = None if dividend.low is None else 1.0
        return Estimate(1.0, bound, bound, dividend.count)
    return dividend / divisor


def _per_doubling(speedup: Estimate | None, growth: float) -> Estimate | None:
    """Return the gain of one doubling, as a share, from the speedup over a growth in devices."""
    if speedup is None or growth == 1:
        return None
    try:
        return speedup.through(lambda r: r ** (1 / math.log2(growth)) - 1)
    except OverflowError:  # The numbers of devices are almost equal.
        return None


def same_work(point: Point, other: Point) -> bool:
    """Say whether two points did the same work within 1 %; two unknown works count as the same."""
    if point.samples is None or other.samples is None:
        return point.samples is other.samples
    return abs(point.samples - other.samples) <= SAME_WORK_TOLERANCE * other.samples


def _saved_share(earlier: Point, point: Point) -> Estimate | None:
    """Return the share of an earlier point's complete time that is saved; None if work differs."""
    share = ratio(point.time, earlier.time) if same_work(point, earlier) else None
    return share.through(lambda s: 1 - s) if share else None


def _quality_doubts(point: Point, base: Point) -> list[Doubt]:
    """Return a doubt if the accuracy differs from the baseline's by more than chance explains, at
    90 % confidence. Chance is the spread of repeats or else that of random validation samples.
    """
    accuracy, expected, samples = point.accuracy, base.accuracy, point.validation_samples
    if point is base or accuracy is None or expected is None or not samples:
        return []
    if accuracy.high is not None and expected.high is not None:
        chance = math.hypot(accuracy.high - accuracy.value, expected.high - expected.value)
    else:
        share = (accuracy.value + expected.value) / 2
        chance = student_t_quantile(samples) * math.sqrt(2 * share * (1 - share) / samples)
    spread = max(chance, 1.5 / samples)  # One sample more or less is always chance.
    if abs(accuracy.value - expected.value) <= spread:
        return []
    figures = {"accuracy": accuracy.value, "baseline": expected.value, "spread": spread}
    return [Doubt("accuracy differs", figures)]


def _fixed_seconds(points: Sequence[Point]) -> float | None:
    """Return the seconds that more devices do not shorten, by a least-squares fit of
    time = fixed + work / throughput; None if they cannot be determined.
    """
    measured = [(p.throughput.value, p.time.value) for p in points if p.throughput and p.time]
    slowness = np.array([1 / rate for rate, _ in measured])
    if len(measured) < 3 or np.ptp(slowness) < 1e-9 * slowness.max():
        return None
    if any(point.samples is not None for point in points):
        return None  # Throughput may have been computed from time: the fit would be circular.
    times = np.array([time for _, time in measured])
    work, fixed = np.polyfit(slowness, times, 1)
    return float(fixed) if work > 0 and 0 < fixed <= times.min() else None
