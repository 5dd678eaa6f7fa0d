"""Points against devices, and what follows from comparing them.

A curve holds the runs that differ only in topology, repeat and what scaling
changes. Each point is first measured on its own; then it is compared with the
smallest one, the baseline, and with the one before it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from scalewise.analysis.measure.estimate import Estimate, student_t_quantile
from scalewise.errors import NotEnoughData

SAME_WORK_TOLERANCE = 0.01
"""How far the samples of two runs may be apart for their times to be compared."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """What was measured on one number of devices, and how it compares."""

    devices: int
    nodes: int | None = None
    throughput: Estimate | None = None
    """Samples per second of all devices, in the steady state."""
    throughput_per_device: Estimate | None = None
    device_name: str | None = None
    """What an engine calls the devices, all kinds of them."""
    flops: int | None = None
    """Operations of one sample, forward and backward."""
    flops_per_second: Estimate | None = None
    """Of the model, on one device."""
    peak: float | None = None
    """Operations per second that the device has in the run's precision, without sparsity."""
    peak_source: str | None = None
    mfu: Estimate | None = None
    """The share of the peak that the model's own operations reach."""
    mfu_unknown: str | None = None
    """Why that is not known."""
    time: Estimate | None = None
    """Seconds of the complete job."""
    epoch_time: Estimate | None = None
    """Seconds per epoch, without the first."""
    first_epoch_time: Estimate | None = None
    complete: Mapping[str, Estimate] = field(default_factory=dict)
    """The complete time by parts of the job's life; with ``unexplained`` they sum to it."""
    energy: Estimate | None = None
    """Joules of what did the computing, over the complete time."""
    energy_covers: str | None = None
    """What that counts: ``accelerators`` without their hosts, or the hosts' ``processors``."""
    energy_hosts: Estimate | None = None
    """Joules of the hosts' processors."""
    power: Estimate | None = None
    """Mean watts of a device over the complete time."""
    memory: Estimate | None = None
    """Peak bytes on the fullest device."""
    held: Estimate | None = None
    """Bytes of parameters, gradients and optimizer state on the device that holds most of them."""
    compression: Mapping[str, Estimate] | None = None
    """Of gradients: the ``ratio`` of their bytes that is exchanged, and the ``error`` it makes as
    a share of the gradient; nothing where they go whole."""
    noise: Estimate | None = None
    """The gradient noise scale in samples, over the whole run."""
    sent: Estimate | None = None
    """Bytes that the device which sends most sends in a step, by the usual counts."""
    exposed: Estimate | None = None
    """Share of a step in which a device only waits for communication, mean over devices."""
    global_batch: int | None = None
    batches_per_rank: int | None = None
    """Per epoch, or in total where epochs do not decide."""
    samples_per_rank: int | None = None
    steps: int | None = None
    """Optimizer steps in total."""
    samples: int | None = None
    """Samples of all ranks in total: the work done."""
    accuracy: Estimate | None = None
    """On the validation data, after the last epoch."""
    validation_samples: int | None = None
    hosts: int | None = None
    left_out: str | None = None
    """What was left out of the steady state as warm-up."""

    ideal: Estimate | None = None
    """The baseline's throughput times the growth in devices."""
    speedup: Estimate | None = None
    """By throughput."""
    speedup_time: Estimate | None = None
    """By complete time, where the work is equal."""
    speedup_epoch: Estimate | None = None
    """By epoch time."""
    efficiency: Estimate | None = None
    """Speedup over growth: by throughput, or by time where that is all there is."""
    gain: Estimate | None = None
    """Throughput added by a doubling, as a share; by time where that is all there is."""
    gain_absolute: float | None = None
    """Samples per second added since the point before."""
    acceleration: Estimate | None = None
    """How many times faster than on another kind of device, by throughput."""
    acceleration_epoch: Estimate | None = None
    """By epoch time, without the first."""
    acceleration_first: Estimate | None = None
    """By the first epoch."""
    accelerated_from: str | None = None
    """How many of which devices that is held against."""
    saved_previous: Estimate | None = None
    """Share of the complete time saved against the point before."""
    saved_baseline: Estimate | None = None
    """Share of the complete time saved against the baseline."""
    serial_fraction: Estimate | None = None
    """Karp and Flatt's experimentally determined serial fraction."""
    overhead: float | None = None
    """Share of the complete time that is not training steps."""
    warnings: tuple[str, ...] = ()

    @property
    def named(self) -> str:
        """How many of which devices.

        >>> Point(devices=4, device_name="NVIDIA H200").named
        '4 x NVIDIA H200'
        """
        return f"{self.devices} x {self.device_name or 'an unknown device'}"

    @property
    def regime(self) -> str | None:
        """Which part of the complete time is the larger one."""
        if self.overhead is None:
            return None
        return "overhead" if self.overhead > 0.5 else "compute"


@dataclass(frozen=True, kw_only=True)
class ScalingCurve:
    """Points against devices, baseline first."""

    study: str
    points: tuple[Point, ...]
    where: Mapping[str, Any] = field(default_factory=dict)
    """What sets this curve apart from others of its study."""
    scaling: str | None = None
    """How the batch grows with devices: weak, strong, or unknown."""
    work: str | None = None
    """What is done in total, in words."""
    conditions: Mapping[str, Any] = field(default_factory=dict)
    """What else was held fixed; curves that differ in it are unlike."""
    unit: str = "samples"
    devices_per_node: int | None = None
    """How many devices fill a node, where that is known."""
    warnings: tuple[str, ...] = ()
    not_correct: tuple[str, ...] = ()
    """Why its training is not correct, a sentence of each guard that says so."""

    def __post_init__(self) -> None:
        if not self.points:
            raise NotEnoughData(f"{self.study}: a curve needs at least one point")

    @property
    def baseline(self) -> Point:
        """The point all others are compared with."""
        return self.points[0]

    @property
    def name(self) -> str:
        """The study, and what sets this curve apart in it."""
        told = ", ".join(f"{key} {value}" for key, value in self.where.items())
        return f"{self.study} ({told})" if told else self.study

    @property
    def turns_at(self) -> int | None:
        """The first number of devices at which overhead dominates, if any does."""
        over = [point.devices for point in self.points if point.regime == "overhead"]
        return over[0] if over else None


def condition_differences(curves: Sequence[ScalingCurve]) -> list[str]:
    """Say in what curves differ that are put side by side, beyond what was varied."""
    told = []
    for curve in curves:
        conditions = {"scaling": curve.scaling, "work": curve.work, **curve.conditions}
        told.append({k: v for k, v in conditions.items() if k not in curve.where})
    shared = [name for name in told[0] if all(name in each for each in told)]
    return describe_differences(
        [{name: each[name] for name in shared} for each in told], "these curves"
    )


def describe_differences(facts: Sequence[Mapping[str, Any]], who: str) -> list[str]:
    """Say in which facts some of ``who`` are not like the others."""
    found = []
    for name in facts[0]:
        values = dict.fromkeys(str(each[name]) for each in facts)
        if len(values) > 1:
            found.append(f"{who} differ in {name}: {', '.join(values)}")
    return found


def compare(curve: ScalingCurve) -> ScalingCurve:
    """Return the curve with every point compared to the baseline and the one before."""
    base = curve.points[0]
    fixed = _fixed_seconds(curve.points)
    by_time = not any(point.throughput for point in curve.points)
    before: list[Point | None] = [None, *curve.points]
    points = []
    for point, previous in zip(curve.points, before):
        timed = _by_clock(point, base, previous, fixed)
        points.append(replace(timed, **_by_speed(point, base, previous, by_time)))
    return replace(curve, points=tuple(points))


def _by_clock(point: Point, base: Point, previous: Point | None, fixed: float | None) -> Point:
    """Return the point with what its times and its quality say against others."""
    first = point is base
    equal_work = same_work(point, base)
    overhead = point.overhead
    if overhead is None and fixed is not None and point.time:
        overhead = fixed / point.time.value
    return replace(
        point,
        speedup_time=_ratio(base.time, point.time, first) if equal_work else None,
        speedup_epoch=_ratio(base.epoch_time, point.epoch_time, first) if equal_work else None,
        saved_previous=_saved(previous, point) if previous and same_work(point, previous) else None,
        saved_baseline=_saved(base, point) if equal_work and not first else None,
        overhead=overhead,
        warnings=(*point.warnings, *_work_warning(point, base), *_quality_warning(point, base)),
    )


def _by_speed(point: Point, base: Point, previous: Point | None, by_time: bool) -> dict[str, Any]:
    """Return what follows from the speedup: by throughput, or by time if that is all there is."""

    def faster(now: Point, then: Point) -> Estimate | None:
        if not by_time:
            return _ratio(now.throughput, then.throughput, now is then)
        return _ratio(then.time, now.time, now is then) if same_work(now, then) else None

    growth = point.devices / base.devices
    speedup = faster(point, base)
    added = None
    if previous and point.throughput and previous.throughput:
        added = point.throughput.value - previous.throughput.value
    return {
        "ideal": base.throughput * growth if base.throughput else None,
        "speedup": None if by_time else speedup,
        "efficiency": speedup * (1 / growth) if speedup else None,
        "serial_fraction": speedup.through(lambda s: (1 / s - 1 / growth) / (1 - 1 / growth))
        if speedup and growth > 1
        else None,
        "gain": _per_doubling(faster(point, previous), point.devices / previous.devices)
        if previous
        else None,
        "gain_absolute": added,
    }


def _ratio(upper: Estimate | None, lower: Estimate | None, same: bool) -> Estimate | None:
    """Return a ratio of estimates; of one with itself it is exactly 1."""
    if upper is None or lower is None:
        return None
    if same:
        known = upper.low is not None
        return Estimate(1.0, 1.0 if known else None, 1.0 if known else None, upper.count)
    return upper / lower


def _per_doubling(ratio: Estimate | None, growth: float) -> Estimate | None:
    """Return what a doubling would have added, as a share."""
    if ratio is None or growth == 1:
        return None
    try:
        return ratio.through(lambda r: r ** (1 / math.log2(growth)) - 1)
    except OverflowError:  # Two almost equal counts: a doubling says nothing.
        return None


def same_work(point: Point, other: Point) -> bool:
    """Say whether two points did the same work, but for a ragged batch; both unknown: taken so."""
    if point.samples is None or other.samples is None:
        return point.samples is other.samples
    return abs(point.samples - other.samples) <= SAME_WORK_TOLERANCE * other.samples


def _saved(earlier: Point, point: Point) -> Estimate | None:
    ratio = _ratio(point.time, earlier.time, same=False)
    return ratio.through(lambda r: 1 - r) if ratio else None


def _work_warning(point: Point, base: Point) -> list[str]:
    if same_work(point, base):
        return []
    return [
        f"{_count(point.samples)} samples in all, and {_count(base.samples)} at the baseline: "
        "times are not compared"
    ]


def _count(samples: int | None) -> str:
    return "an unknown number of" if samples is None else f"{samples:,}"


def _quality_warning(point: Point, base: Point) -> list[str]:
    """Flag a validation accuracy that differs from the baseline's beyond its spread."""
    mine, theirs = point.accuracy, base.accuracy
    if point is base or mine is None or theirs is None or not point.validation_samples:
        return []
    allowed = _spread(mine, theirs, point.validation_samples)
    if abs(mine.value - theirs.value) <= allowed:
        return []
    return [
        f"validation accuracy {mine.value:.1%} differs from the baseline's "
        f"{theirs.value:.1%} by more than its spread ({allowed:.1%})"
    ]


def _spread(mine: Estimate, theirs: Estimate, samples: int) -> float:
    """Return the difference of two accuracies that chance explains, at 90 %.

    From the repeats where there are some, but never less than one and a half
    validation samples; for single runs, from the size of the validation set.
    """
    if mine.high is not None and theirs.high is not None:
        return max(math.hypot(mine.high - mine.value, theirs.high - theirs.value), 1.5 / samples)
    share = (mine.value + theirs.value) / 2
    return max(
        student_t_quantile(samples) * math.sqrt(2 * share * (1 - share) / samples), 1.5 / samples
    )


def _fixed_seconds(points: Sequence[Point]) -> float | None:
    """Return the part of the time that devices do not shorten, where only totals are known.

    Least squares of time = fixed + work / throughput; an approximation.
    """
    known = [(p.throughput.value, p.time.value) for p in points if p.throughput and p.time]
    slowness = np.array([1 / rate for rate, _ in known])
    if len(known) < 3 or np.ptp(slowness) < 1e-9 * slowness.max():
        return None
    if any(point.samples is not None for point in points):
        return None  # The throughput is then only the time in other words.
    times = np.array([time for _, time in known])
    work, fixed = np.polyfit(slowness, times, 1)
    return float(fixed) if work > 0 and 0 < fixed <= times.min() else None
