"""A scaling curve: its runs differ only in topology, repeat and the batch size that weak or strong
scaling requires. Each point is compared with the smallest (the baseline) and the previous one.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from scalewise.analysis.certify.certificate import Certificate
from scalewise.analysis.measure.doubt import UNKNOWN_ERROR, Doubt, DoubtKind
from scalewise.analysis.measure.estimate import Estimate, student_t_quantile
from scalewise.analysis.measure.point import Point
from scalewise.analysis.measure.table_reading import TableReading
from scalewise.analysis.measure.table_start import TableStart, fit_table_start
from scalewise.errors import NotEnoughData
from scalewise.spec import FullRun

ONE_EPOCH = "one epoch"
"""The work of a table whose times are those of an epoch."""
RELATIVE_UNIT = "baseline"
"""The unit of throughputs that are known only relative to the baseline's."""
SAME_BATCH_TOLERANCE = 0.05
"""The share by which a global batch may deviate from that of exact weak or strong scaling."""
SAME_WORK_TOLERANCE = 0.01
"""Times are compared only if the runs' numbers of samples differ by at most this share."""


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """Runs that are much shorter than a training: stopped early, or mostly start-up."""

    work: str
    """What each of them did: ``300 steps of the program``."""
    start_share: float | None
    """The share of start-up in the baseline's complete time; None if unknown."""


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
    samples_per_epoch: int | None = None
    """Samples of all ranks in an epoch; None if unknown."""
    rehearsal: Rehearsal | None = None
    """What the runs did, if they were much shorter than a training."""
    full_run: FullRun | None = None
    """The training that times and samples of the points are for; None: the measured runs."""
    measured: "ScalingCurve | None" = field(default=None, repr=False)
    """The curve of the measured runs, if times are those of a full run or of a unit of work."""
    unit_of_work: str | None = None
    """``epoch`` if the times of a rehearsal are those of one epoch, without start-up."""
    warnings: tuple[str | Doubt, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    """All doubts about the curve and its points, the most severe first (``analysis.doubts``)."""
    certificates: tuple[Certificate, ...] = ()
    """Whether runs of this curve learn what one device learns; empty if that was not tested."""
    read_as: TableReading | None = None
    """How a table was read; None for a study, and for a table that needed no interpretation."""

    def __post_init__(self) -> None:
        if not self.points:
            raise NotEnoughData(f"{self.study}: a curve needs at least one point")

    @property
    def baseline(self) -> Point:
        """The smallest point, with which all points are compared."""
        return self.points[0]

    def point_at(self, devices: int) -> Point | None:
        """Return the point with this many devices, of several the first (fewer nodes), or None."""
        return self._first_points.get(devices)

    @cached_property
    def _first_points(self) -> dict[int, Point]:
        return {point.devices: point for point in reversed(self.points)}

    @property
    def name(self) -> str:
        """The study with this curve's varied settings."""
        settings = ", ".join(f"{key} {value}" for key, value in self.where.items())
        return f"{self.study} ({settings})" if settings else self.study

    @property
    def not_correct(self) -> tuple[str, ...]:
        """Sentences about faults that make the training incorrect; empty if none was found."""
        faults = [doubt for doubt in self.doubts if doubt.severity == "blocks"]
        return tuple(doubt.figures["says"] for doubt in faults if "says" in doubt.figures)

    @property
    def rate_unit(self) -> str:
        """The unit of throughput: ``images/s``; ``× baseline`` where only ratios are known."""
        return "× baseline" if self.unit == RELATIVE_UNIT else f"{self.unit}/s"

    @property
    def rate_label(self) -> str:
        """What a plot of throughputs shows: ``images per second``."""
        return "times the baseline" if self.unit == RELATIVE_UNIT else f"{self.unit} per second"

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


def partly_filled_nodes(per_node: int | None, counts: Iterable[int]) -> tuple[Doubt, ...]:
    """Return a doubt if numbers of devices need several nodes and do not fill the last one."""
    uneven = [count for count in counts if per_node and count > per_node and count % per_node]
    figures = {"per_node": per_node, "counts": uneven}
    return (Doubt("partly filled nodes", figures),) if uneven else ()


def compare(curve: ScalingCurve) -> ScalingCurve:
    """Return the curve with every point compared to the baseline and to the previous point."""
    by_time = not any(point.throughput for point in curve.points)
    points = [
        replace(timed, **_compare_speed(point, curve.baseline, previous, by_time))
        for timed, point, previous in zip(
            compare_times(curve).points, curve.points, [None, *curve.points]
        )
    ]
    return replace(curve, points=tuple(points))


def compare_times(curve: ScalingCurve) -> ScalingCurve:
    """Return the curve with every point's times compared to the baseline and the previous point."""
    start = fit_table_start(curve.points)
    points = [
        _compare_times(point, curve.baseline, previous, start)
        for point, previous in zip(curve.points, [None, *curve.points])
    ]
    return replace(curve, points=tuple(points))


def _compare_times(
    point: Point, base: Point, previous: Point | None, start: TableStart | None
) -> Point:
    """Return the point with compared times and accuracy; ``start`` is that of a table's jobs."""
    equal_work = same_work(point, base)
    figures = {"samples": point.samples, "baseline": base.samples}
    work_doubts = [] if equal_work else [Doubt("work differs", figures)]
    overhead = point.overhead
    if overhead is None and start and point.time:
        overhead = start.start(point.devices) / point.time.value
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


def time_efficiency(curve: ScalingCurve, point: Point) -> Estimate | None:
    """Return the speedup by complete time / growth in devices; None if it is not known."""
    growth = point.devices / curve.baseline.devices
    return point.speedup_time * (1 / growth) if point.speedup_time else None


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
    return [Doubt("accuracy differs", figures, error=UNKNOWN_ERROR)]


def observed_scaling(points: Sequence[Point]) -> str | None:
    """Return the scaling by which the global batch grew: ``weak``, ``strong`` or None."""
    pairs = [(p.devices / points[0].devices, p.global_batch or 0) for p in points]
    if len(points) < 2 or not all(batch for _, batch in pairs):
        return None
    first_batch = pairs[0][1]
    for rule, power in (("weak", 1), ("strong", 0)):
        deviations = [abs(batch / first_batch / growth**power - 1) for growth, batch in pairs]
        if max(deviations) <= SAME_BATCH_TOLERANCE:
            return rule
    return None
