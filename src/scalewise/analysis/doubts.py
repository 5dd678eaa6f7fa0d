"""Find the doubts about a curve once, when its results are loaded, and attach them to it."""

import math
from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

import numpy as np

from scalewise.analysis.conservation import conservation_doubts
from scalewise.analysis.explain.guards import run_guards
from scalewise.analysis.measure import Doubt, Point, ScalingCurve
from scalewise.analysis.measure.curve import ratio, same_work
from scalewise.analysis.measure.doubt import SEVERITIES, UNKNOWN_ERROR, DoubtKind, widening
from scalewise.analysis.measure.table_start import nonnegative_least_squares
from scalewise.analysis.predict.downsample import MAX_POINTS
from scalewise.analysis.predict.outliers import find_outliers
from scalewise.analysis.predict.series import Metric, curve_series
from scalewise.record import replicas
from scalewise.record.read import RunRecord

MAX_USUAL_EFFICIENCY = 1.10
"""Noise and caches explain an efficiency up to this value."""
MAX_POSSIBLE_EFFICIENCY = 1.50
"""Above this value, one of the two compared numbers is wrong."""
MAX_TIME_ERROR = 0.10
"""A time may be this much shorter than its samples take at the measured throughput."""
MAX_TIME_RESIDUAL = 0.30
"""By how much a time may differ from fixed + work / throughput, fitted to the other rows."""
MAX_BOTH_GROW = 1.3
"""From one row to the next, time and throughput cannot both grow by more than this factor."""
MIN_TIME_RATIO = 3.0
"""A time is doubted only if it errs this many times as much as the other rows."""
MIN_TIME_ROWS = 4
MAX_SUSPECTS = 4
"""Rows of a long table whose time may disagree: those that err most."""
RATES_AND_TIMES = ("throughput", "throughput_per_device", "time", "epoch_time")
RATIOS = ("speedup", "efficiency", "speedup_time", "speedup_epoch")
"""The estimates of a point that compare it with the baseline."""
MIN_OUTLIER_ERROR = 0.2
"""A point that is off by a smaller share is only noted."""
MIN_BASELINE_FACTOR = 1.5
"""The baseline is an outlier only from this factor on: overhead that begins with the second device
makes the baseline faster than the other points predict."""


def with_doubts(curve: ScalingCurve, records: Sequence[RunRecord] = ()) -> ScalingCurve:
    """Return the curve with all doubts about it, the most severe first; weakening doubts widen the
    intervals of the points they are about. ``records`` are those of the curve's runs.
    """
    outliers = _outlier_doubts(curve)
    odd = {doubt.devices for doubt in outliers if doubt.kind == "outlier"}
    time_doubts = _time_doubts(curve.points)
    local = _local_sgd_notes(records)
    doubts = [
        *_correctness_doubts(records),
        *conservation_doubts(records),
        *local,
        *_efficiency_doubts(curve, odd),
        *(d for d in time_doubts if d.kind == "impossible time" or d.devices not in odd),
        *outliers,
        *(doubt for doubt in curve.warnings if isinstance(doubt, Doubt)),
        *(
            replace(doubt, devices=point.devices)
            for point in curve.points
            for doubt in point.warnings
            if isinstance(doubt, Doubt)
        ),
    ]
    order = ("blocks", "weakens", "notes")
    doubts.sort(key=lambda doubt: order.index(doubt.severity))  # Stable.
    base_error = widening(doubts, curve.baseline.devices)
    points = []
    for point in curve.points:
        error = widening(doubts, point.devices)
        # Ratios have the errors of both points; the baseline is exactly 1.
        ratio_error = 0.0 if point is curve.baseline else math.hypot(error, base_error)
        widened = _widened_point(point, RATES_AND_TIMES, error)
        points.append(_widened_point(widened, RATIOS, ratio_error))
    # What is noted about rows is shown with the other warnings, after the answer.
    noted = [doubt for doubt in (*outliers, *local) if doubt.severity == "notes"]
    warnings = (*curve.warnings, *noted)
    return replace(curve, points=tuple(points), warnings=warnings, doubts=tuple(doubts))


def _widened_point(point: Point, names: Sequence[str], error: float) -> Point:
    """Return the point with an error added to the estimates of these names."""
    if not error:
        return point
    estimates: dict[str, Any] = {
        name: estimate.widened(error)
        for name in names
        if (estimate := getattr(point, name)) is not None
    }
    return replace(point, **estimates)


def _correctness_doubts(records: Sequence[RunRecord]) -> list[Doubt]:
    """Return the faults that the guards of ``explain`` find; some that may be meant so weaken."""
    doubts = []
    for fault in run_guards(records) or ():
        if fault.kind == "correct" and fault.name in SEVERITIES:
            figures = {"says": fault.sentence, "hint": fault.hint}
            error = UNKNOWN_ERROR if fault.question else 0.0
            doubts.append(Doubt(cast(DoubtKind, fault.name), figures, fault.devices, error))
    return doubts


def _local_sgd_notes(records: Sequence[RunRecord]) -> list[Doubt]:
    """Return a note for each number of devices on which ranks train by local SGD."""
    devices = {
        record.spec.topology.world
        for record in records
        if replicas.averages_weights([rank.notes.facts for rank in record.ranks])
    }
    return [Doubt("local SGD", devices=count) for count in sorted(devices)]


def _efficiency_doubts(curve: ScalingCurve, odd: Container[int | None]) -> list[Doubt]:
    """Return a doubt for each point whose efficiency is higher than noise and caches explain. The
    numbers of devices ``odd`` are outliers, with which other points are not compared.
    """
    doubts = []
    is_possible = _possible_efficiencies(curve.points)
    for index, point in enumerate(curve.points):
        for reference in () if is_possible[index] else curve.points[:index]:
            if reference.devices in odd:
                continue
            efficiency = _relative_efficiency(point, reference)
            if efficiency is not None and efficiency > MAX_POSSIBLE_EFFICIENCY:
                figures = {"efficiency": efficiency, "reference": reference.devices}
                doubts.append(Doubt("implausible efficiency", figures, point.devices))
                break
        else:
            share = point.efficiency if point.devices != curve.baseline.devices else None
            # With repeats, the whole interval must lie above.
            if share and (share.low or share.value) > MAX_USUAL_EFFICIENCY:
                figures = {"efficiency": share.value, "reference": curve.baseline.devices}
                error = math.log(share.value)
                doubts.append(Doubt("superlinear", figures, point.devices, error))
    return doubts


def _possible_efficiencies(points: Sequence[Point]) -> list[bool]:
    """Return for each point whether its efficiency relative to any smaller point is possible; a
    quick answer, without regard to what can be compared, that spares most points of long tables
    the comparison with every other.
    """
    is_possible = [True] * len(points)
    for metric in ("throughput", "time"):
        least = math.inf  # The slowest work per device so far.
        for index, point in enumerate(points):
            estimate = getattr(point, metric)
            if estimate is None or not estimate.value:
                continue
            rate = estimate.value if metric == "throughput" else 1 / estimate.value
            per_device = rate / point.devices
            # A little less, for rounding.
            if per_device > 0.999 * MAX_POSSIBLE_EFFICIENCY * least:
                is_possible[index] = False
            least = min(least, per_device)
    return is_possible


def _relative_efficiency(point: Point, reference: Point) -> float | None:
    """Return the efficiency of a point relative to a smaller one; None if not comparable."""
    if point.device_name != reference.device_name or point.devices == reference.devices:
        return None
    growth = point.devices / reference.devices
    if point.throughput and reference.throughput:
        return point.throughput.value / reference.throughput.value / growth
    if point.time and reference.time and same_work(point, reference):
        return reference.time.value / point.time.value / growth
    return None


def _time_doubts(points: Sequence[Point]) -> list[Doubt]:
    """Return a doubt for each point whose time is impossible with its samples, and for the one row
    of a table whose time does not go with its throughput.
    """
    doubts = []
    for point in points:
        is_resumed = any(isinstance(d, Doubt) and d.kind == "resumed" for d in point.warnings)
        if point.time and point.throughput and point.samples and not is_resumed:
            needed = point.samples / point.throughput.value
            if point.time.value < needed * (1 - MAX_TIME_ERROR):
                figures = {"time": point.time.value, "needed": needed}
                doubts.append(Doubt("impossible time", figures, point.devices))
    rows = [point for point in points if point.time and point.throughput and not point.samples]
    disagreement = _growth_disagreement(rows) or _fit_disagreement(rows)
    return [*doubts, disagreement] if disagreement else doubts


def _growth_disagreement(rows: Sequence[Point]) -> Doubt | None:
    """Return a doubt about the first row whose time and throughput both grow from the last one."""
    for smaller, larger in pairwise(rows):
        slower = ratio(larger.time, smaller.time)
        faster = ratio(larger.throughput, smaller.throughput)
        if slower and faster and larger.time and min(slower.value, faster.value) > MAX_BOTH_GROW:
            expected = larger.time.value / slower.value / faster.value
            figures = {"time": larger.time.value, "expected": expected}
            return Doubt("time disagrees", figures, larger.devices, math.log(slower.value))
    return None


def _fit_disagreement(rows: Sequence[Point]) -> Doubt | None:
    """Return a doubt about the row without which the other rows agree best, if it is far off."""
    if len(rows) < MIN_TIME_ROWS:
        return None
    suspects = rows
    if len(rows) > MAX_POINTS:
        expected_time, _ = _fit_times(rows)
        suspects = sorted(rows, key=lambda row: -_log_error(row, expected_time))[:MAX_SUSPECTS]
    fits = [
        (_fit_times([row for row in rows if row is not suspect]), suspect) for suspect in suspects
    ]
    (predict_time, spread), worst = min(fits, key=lambda fit: fit[0][1])
    assert worst.time is not None  # Rows have times.
    expected = predict_time(worst)
    error = _log_error(worst, predict_time)
    if error <= max(MAX_TIME_RESIDUAL, MIN_TIME_RATIO * spread):
        return None
    figures = {"time": worst.time.value, "expected": expected}
    return Doubt("time disagrees", figures, worst.devices, error)


def _fit_times(rows: Sequence[Point]) -> tuple[Callable[[Point], float], float]:
    """Fit time = fixed + work / throughput (+ growing log2 N from four rows on) to rows of a table.
    Return the time of a row by this law, and the largest logarithmic error of the fitted rows.
    """

    def terms(row: Point) -> list[float]:
        assert row.throughput is not None  # Rows have throughputs.
        parts = [1.0, 1 / row.throughput.value, math.log2(row.devices)]
        return parts if len(rows) >= MIN_TIME_ROWS else parts[:2]

    times = np.array([row.time.value for row in rows if row.time])
    parameters = nonnegative_least_squares(np.array([terms(row) for row in rows]), times)

    def time_of(row: Point) -> float:
        return max(float(np.dot(parameters, terms(row))), 1e-9)

    return time_of, max(_log_error(row, time_of) for row in rows)


def _log_error(row: Point, time_of: Callable[[Point], float]) -> float:
    assert row.time is not None  # Rows have times.
    return abs(math.log(row.time.value / time_of(row)))


def _outlier_doubts(curve: ScalingCurve) -> list[Doubt]:
    """Return a doubt for each point that the other points of the curve do not predict."""
    doubts = []
    metrics: tuple[Metric, ...] = ("throughput", "time")
    for metric in metrics:
        series = curve_series(curve, metric)
        if series is None or (metric == "time" and curve.baseline.complete):
            continue  # The complete time of a recorded run is the sum of its spans.
        for row in find_outliers(series):
            error = abs(math.log(row.measured / row.expected))
            is_baseline = row.devices == curve.baseline.devices
            if is_baseline and error < math.log(MIN_BASELINE_FACTOR):
                continue
            figures = {
                "metric": metric, "measured": row.measured, "expected": row.expected,
                "law": row.law, "unit": "s" if metric == "time" else curve.rate_unit,
            }  # fmt: skip
            kind: DoubtKind = "outlier" if error >= MIN_OUTLIER_ERROR else "small outlier"
            doubts.append(Doubt(kind, figures, row.devices, error))
    return doubts
