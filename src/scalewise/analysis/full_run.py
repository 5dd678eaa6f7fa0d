"""The full run: a measured curve whose times are those of the real training.

What is measured is usually a rehearsal of a longer training:

    time of the full run = start + samples / throughput + warm-up + validation and checkpoints

The start and the extra time of the warm-up steps occur once; validation and checkpoints grow with
the samples. Without a full run, a rehearsal is expressed per unit of work, without its start.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from scalewise.analysis.measure import Doubt, Estimate, Point, ScalingCurve
from scalewise.analysis.measure.curve import RELATIVE_UNIT, compare_times
from scalewise.analysis.measure.doubt import widening
from scalewise.analysis.measure.estimate import count_blocks
from scalewise.analysis.measure.table_start import TableStart, fit_table_start
from scalewise.analysis.predict.complete_time import (
    FITTED_START,
    MIN_START_SPREAD,
)
from scalewise.errors import SpecError, parameter
from scalewise.record.schema import TRAIN, recurring
from scalewise.spec import FullRun

MIN_DRIFT = 0.03
"""Smallest relative error of a rate in a much longer run: slow changes of a machine's speed do not
show within a rehearsal.
"""
SINGLE_CPU_DRIFT = 0.25
"""The same for a single run on processor cores, whose clocks vary and which virtual machines share.
Repeated runs show this themselves.
"""
SINGLE_START_SPREAD = 0.25
"""Relative error of a start that was measured once: caches and other users change a second one."""
UNIT_SAMPLES = 10**6
"""The unit of work if the samples of an epoch are unknown."""
SAMPLES_EXAMPLE = "115e6 samples"
TextOrDoubt = TypeVar("TextOrDoubt", bound=str | Doubt)


def full_run_curve(curve: ScalingCurve, full_run: FullRun) -> ScalingCurve:
    """Return the same curve with the times of the full run. Every point has its samples."""
    curve = curve.measured or curve
    if any(point.complete for point in curve.points):
        samples = full_run_samples(curve, full_run)
        return _with_work(curve, samples, work=full_run.text, full_run=full_run)
    return _full_run_of_table(curve, full_run)


def per_unit_of_work(curve: ScalingCurve) -> ScalingCurve:
    """Return a rehearsal's curve with the time of one epoch, or of a million samples if the samples
    of an epoch are unknown; without the start. Return any other curve as it is.
    """
    if not curve.rehearsal or curve.full_run or curve.unit_of_work:
        return curve
    samples = curve.samples_per_epoch or UNIT_SAMPLES
    unit = "epoch" if curve.samples_per_epoch else f"million {curve.unit}"
    return _with_work(curve, samples, with_start=False, work=f"1 {unit}", unit_of_work=unit)


def full_run_samples(curve: ScalingCurve, full_run: FullRun) -> int:
    """Return the samples of the full run, which are the same on every number of devices."""
    base = curve.baseline
    in_unit = {
        "epochs": curve.samples_per_epoch,
        "samples": None if curve.unit == "tokens" else 1,
        "tokens": 1 if curve.unit == "tokens" else None,
        "steps": base.global_batch,
        "x": base.samples,
    }[full_run.unit]
    if in_unit is None:
        unknown = {
            "epochs": f"the {curve.unit} of an epoch are not known",
            "steps": "the global batch is not known",
            "x": f"the {curve.unit} that were measured are not known",
        }.get(full_run.unit, f"the work was measured in {curve.unit}")
        example = parameter("full_run", SAMPLES_EXAMPLE.replace("samples", curve.unit))
        raise SpecError(f"{full_run.text}: {unknown}", hint=f"give them in all: {example}")
    return max(1, round(full_run.amount * in_unit))


def _with_work(
    curve: ScalingCurve, samples: int, *, with_start: bool = True, **fields: object
) -> ScalingCurve:
    """Return the curve as if every point had trained on this many samples."""
    points = []
    for point in curve.points:
        parts: Mapping[str, Estimate] = {}
        if point.samples and point.throughput and TRAIN in point.complete:
            parts = _scaled_parts(curve, point, samples, with_start=with_start)
        points.append(_with_time(point, samples, parts))
    fields["doubts"] = _without_work_differs(curve.doubts)
    changed = replace(curve, points=tuple(points), measured=curve, **fields)  # type: ignore[arg-type]
    return compare_times(changed)


def _scaled_parts(
    curve: ScalingCurve, point: Point, samples: int, *, with_start: bool
) -> dict[str, Estimate]:
    """Return the parts of a job's time for this many samples."""
    assert point.throughput  # The caller checks this.
    measured = _samples_of_last_attempt(point)
    growth = samples / measured
    # The built-in loop validates at least once, also if it has trained on less than an epoch.
    shortest_validated = 0 if "program" in curve.conditions else curve.samples_per_epoch or 0
    rate = point.throughput
    blocks = rate.count if rate.count > 1 else count_blocks(point.steps or 1)
    single_cpu = point.device_name == "cpu" and rate.count == 1
    floor = SINGLE_CPU_DRIFT if single_cpu else MIN_DRIFT
    doubted = widening(curve.doubts, point.devices)
    steady = drifting(rate, growth, blocks, floor, doubted).through(lambda speed: samples / speed)
    # What the warm-up steps took longer than steady ones.
    warm_up = max(0.0, point.complete[TRAIN].value - measured / rate.value)
    parts: dict[str, Estimate] = {}
    for name, part in point.complete.items():
        if name == TRAIN:
            parts[name] = steady.through(lambda seconds: seconds + warm_up * with_start)
        elif name == "validate":
            parts[name] = part * (samples / max(measured, shortest_validated))
        elif name in recurring("every epoch"):
            parts[name] = part * growth
        elif with_start and name not in recurring("never"):
            parts[name] = part
    return parts


def _samples_of_last_attempt(point: Point) -> float:
    """Return the samples that the measured spans trained on, the mean of all repeats: a resumed run
    has only the spans of its last attempt, but the samples and steps of all attempts.
    """
    assert point.samples  # The caller checks this.
    resumed_steps = sum(
        doubt.figures["step"]
        for doubt in point.warnings
        if isinstance(doubt, Doubt) and doubt.kind == "resumed"
    )
    if not resumed_steps or not point.steps:
        return point.samples
    share = 1 - resumed_steps / (point.steps * point.complete[TRAIN].count)
    return point.samples * share if share > 0 else point.samples


def drifting(
    rate: Estimate, growth: float, blocks: int, floor: float, doubted: float = 0.0
) -> Estimate:
    """Return a measured rate with its interval in a run that is ``growth`` times as long. A slow
    drift does not average out: the rest of that run differs from what was measured as one of its
    ``blocks`` (runs or blocks of steps) differs from the others, and by at least ``floor``.
    ``doubted`` is the error of doubts that the interval already contains: it is no scatter of the
    blocks, so that it does not grow.
    """
    if rate.low is None or rate.high is None or growth <= 1:
        return rate
    # The inverse of ``Estimate.widened``.
    scatter = math.sqrt(max(0.0, (rate.high / rate.value - 1) ** 2 - doubted**2))
    measured = math.log1p(scatter)
    drift = max(floor, measured * math.sqrt(blocks)) * (1 - 1 / growth)
    width = math.hypot(measured, drift)
    return Estimate(
        rate.value, rate.value * math.exp(-width), rate.value * math.exp(width), rate.count
    ).widened(doubted)


def _with_time(point: Point, samples: int, parts: Mapping[str, Estimate]) -> Point:
    """Return the point with the sum of ``parts`` as its time; without parts, the time is unknown.
    What only the measured run has, such as its accuracy, becomes unknown.
    """
    time = _sum_of_parts(parts) if parts else None
    longer = time.value / point.time.value if time and point.time else None
    growth = samples / point.samples if point.samples else None
    return replace(
        point,
        samples=samples,
        steps=round(point.steps * growth) if point.steps and growth else None,
        complete=parts,
        time=time,
        overhead=1 - parts[TRAIN].value / time.value if time else None,
        energy=point.energy * longer if point.energy and longer else None,
        energy_hosts=point.energy_hosts * longer if point.energy_hosts and longer else None,
        accuracy=None,
        validation_samples=None,
        warnings=_without_work_differs(point.warnings),
    )


def _without_work_differs(warnings: Iterable[TextOrDoubt]) -> tuple[TextOrDoubt, ...]:
    """Return the warnings but those about unequal work, which a full run makes equal."""
    return tuple(
        doubt
        for doubt in warnings
        if not (isinstance(doubt, Doubt) and doubt.kind == "work differs")
    )


def _sum_of_parts(parts: Mapping[str, Estimate]) -> Estimate:
    """Return the complete time: the errors of training and of the other parts are independent."""
    train = parts[TRAIN]
    others = [part for name, part in parts.items() if name != TRAIN]
    other_seconds = sum(part.value for part in others)
    total = train.value + other_seconds
    if train.low is None or train.high is None:
        return Estimate(total, count=train.count)
    spread = other_seconds * (MIN_START_SPREAD if train.count > 1 else SINGLE_START_SPREAD)
    below = [part.value - part.low for part in others if part.low is not None]
    above = [part.high - part.value for part in others if part.high is not None]
    low = total - math.hypot(train.value - train.low, spread, *below)
    high = total + math.hypot(train.high - train.value, spread, *above)
    return Estimate(total, max(low, 0.0), high, train.count)


def _full_run_of_table(curve: ScalingCurve, full_run: FullRun) -> ScalingCurve:
    """Return the full run of a table, which has no spans. Its start is fitted if the table has
    times and throughputs; otherwise it is unknown.
    """
    if curve.unit == RELATIVE_UNIT:
        raise SpecError(
            f"{full_run.text}: this table has only speedups, so no time is known",
            hint="add a column time or throughput",
        )
    fit = fit_table_start(curve.points, min_points=2)
    doubts = () if fit else (Doubt("start unknown"),)
    changed = compare_times(
        replace(
            curve,
            points=_table_points(curve, full_run, fit),
            work=full_run.text,
            full_run=full_run,
            measured=curve,
            warnings=(*curve.warnings, *doubts),
        )
    )
    # Work that still differs: a multiple of rows with unequal samples.
    unequal = tuple(
        replace(doubt, devices=point.devices)
        for point in changed.points
        for doubt in point.warnings
        if isinstance(doubt, Doubt) and doubt.kind == "work differs"
    )
    points = changed.points
    if fit is None:  # Without a start, the share of overhead is unknown, too.
        points = tuple(replace(point, overhead=None) for point in points)
    known_doubts = (*_without_work_differs(curve.doubts), *unequal, *doubts)
    return replace(changed, points=points, doubts=known_doubts)


def _table_points(
    curve: ScalingCurve, full_run: FullRun, fit: TableStart | None
) -> tuple[Point, ...]:
    """Return the points of a table with the times of the full run: from throughputs, or else as a
    multiple of the table's times.
    """
    points, amount = curve.points, full_run.amount
    if full_run.unit == "epochs" and all(point.epoch_time for point in points):
        return tuple(_multiplied(point, point.epoch_time, amount) for point in points)
    if full_run.unit == "x" and fit is None and all(point.time for point in points):
        return tuple(_multiplied(point, point.time, amount) for point in points)
    if not any(point.throughput for point in points):
        raise SpecError(
            f"{full_run.text}: this table has neither throughputs nor {curve.unit}",
            hint=f"give {parameter('full_run', '18x')}, 18 times the work of the table's times",
        )
    measured = round(fit.work) if fit else points[0].samples
    base = replace(points[0], samples=measured)
    samples = full_run_samples(replace(curve, points=(base, *points[1:])), full_run)
    return tuple(_table_point(point, samples, fit) for point in points)


def _multiplied(point: Point, time: Estimate | None, amount: float) -> Point:
    """Return a point of a table with a multiple of one of its times, and of its samples if they are
    those of that time.
    """
    samples = round(point.samples * amount) if point.samples and time == point.time else None
    return replace(
        _with_time(point, samples or 1, {}), time=time and time * amount, samples=samples
    )


def _table_point(point: Point, samples: int, fit: TableStart | None) -> Point:
    """Return a point of a table with throughputs, with the time of this many samples."""
    rate = point.throughput
    if rate is None:
        return _with_time(point, samples, {})
    steady = rate.through(lambda speed: samples / speed)
    if fit is None:
        return _with_time(point, samples, {TRAIN: steady})
    start = fit.start(point.devices)
    train = steady
    if point.time:
        train = _table_training(point.time, start, samples / fit.work, steady)
    return _with_time(point, samples, {TRAIN: train, FITTED_START: Estimate(start)})


def _table_training(time: Estimate, start: float, growth: float, steady: Estimate) -> Estimate:
    """Return the training time of a run ``growth`` times as long as a table's: what was measured
    without the start, and the rest at the steady rate, at which all of it takes ``steady``.
    """
    measured = time.through(lambda seconds: (seconds - start) * min(growth, 1.0))
    train = measured
    if growth > 1:
        train = _independent_sum(measured, steady * (1 - 1 / growth))
    if train.value <= 0:  # A noisy time, shorter than the fitted start.
        return steady
    if train.low is not None and train.low <= 0:
        return replace(train, low=min(train.value, steady.low or steady.value))
    return train


def _independent_sum(first: Estimate, second: Estimate) -> Estimate:
    """Return a sum of estimates with independent errors; the interval is known if both are."""
    total, count = first.value + second.value, min(first.count, second.count)
    if first.low is None or first.high is None or second.low is None or second.high is None:
        return Estimate(total, count=count)
    below = math.hypot(first.value - first.low, second.value - second.low)
    above = math.hypot(first.high - first.value, second.high - second.value)
    return Estimate(total, total - below, total + above, count)
