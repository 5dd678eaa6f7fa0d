"""The complete time of a job, from launch to end: the sum of its spans. "train" is predicted from
its throughput, any other span (launch, …) by seconds(N) = fixed + growing log2 N + shared / N.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scalewise.analysis.measure import Estimate, Point, ScalingCurve
from scalewise.analysis.measure.curve import SAME_WORK_TOLERANCE
from scalewise.analysis.measure.estimate import student_t_quantile
from scalewise.analysis.measure.table_start import nonnegative_least_squares
from scalewise.analysis.number_format import format_number
from scalewise.analysis.predict.downsample import downsample
from scalewise.analysis.predict.forecast import forecast
from scalewise.analysis.predict.series import Floats, Series, make_series

MIN_START_SPREAD = 0.05
"""Smallest relative error of the other spans' sum, which differs between launches of one job."""
FITTED_START = "start-up"
"""The name of the start of a table's jobs, which have no spans, beside those of spans."""
NEGLIGIBLE_SECONDS = 1e-6  # Smaller terms are not printed.
ZERO = Estimate(0.0)


@dataclass(frozen=True, slots=True)
class SpanLaw:
    """Seconds of one span of a job, by device count, with the formula at the top of this file."""

    name: str
    fixed: float
    growing: float
    shared: float

    def seconds(self, at: Floats) -> Floats:
        return np.asarray(self.fixed + self.growing * np.log2(at) + self.shared / at)

    def __str__(self) -> str:
        terms = {"": self.fixed, " log2 N": self.growing, "/N": self.shared}
        formula = [
            f"{format_number(size)}{term}"
            for term, size in terms.items()
            if size > NEGLIGIBLE_SECONDS
        ]
        return f"{self.name} {' + '.join(formula)}"


@dataclass(frozen=True)
class CompleteTime:
    """The complete time at each requested device count, and the laws of the other spans."""

    times: tuple[Estimate, ...]
    span_laws: tuple[SpanLaw, ...]

    def __str__(self) -> str:
        formulas = [
            str(span)
            for span in self.span_laws
            if span.fixed + span.growing + span.shared > NEGLIGIBLE_SECONDS
        ]
        return f"T(N) = {' + '.join(['training', *formulas])} seconds"


def predict_complete_time(curve: ScalingCurve, at: Floats) -> CompleteTime | None:
    """Return the complete time at these counts; None without two counts with spans and samples."""
    points = [point for point in curve.points if "train" in point.complete and point.time]
    samples = samples_at(points, at)
    if len({point.devices for point in points}) < 2 or samples is None:
        return None
    cost = forecast(downsample(_training_series(curve, points)), at)
    training = [samples * np.exp(log_cost) / at for log_cost in (cost.middle, cost.low, cost.high)]
    counts = np.array([float(point.devices) for point in points])
    spans, fit_error = _fit_spans(points, counts)
    other_error, other = math.hypot(MIN_START_SPREAD, fit_error), _sum_seconds(spans, at)
    times = []
    rows = zip(*(column.tolist() for column in (*training, other, at)))
    for train, train_low, train_high, seconds, count in rows:
        doublings = max(0.0, math.log2(count / counts[-1]))
        log_error = other_error * math.sqrt(1 + doublings)  # Beyond the largest it grows.
        below = math.hypot(train - train_low, -seconds * math.expm1(-log_error))
        above = math.hypot(train_high - train, seconds * math.expm1(log_error))
        complete = train + seconds
        times.append(Estimate(complete, complete - below, complete + above, len(points)))
    return CompleteTime(tuple(times), spans)


def _training_series(curve: ScalingCurve, points: Sequence[Point]) -> Series:
    """Return the throughput of the training span, as a series."""
    # Reversed: of two points with equal device counts the first, with fewer nodes, is used.
    rates = {
        point.devices: point.samples / point.complete["train"].value
        for point in reversed(points)
        if point.samples and point.complete["train"].value > 0
    }
    counts = sorted(rates)
    throughputs = [rates[count] for count in counts]
    return make_series(counts, throughputs, "throughput", curve.scaling, curve.devices_per_node)


def samples_at(points: Sequence[Point], at: Floats) -> Floats | None:
    """Return a job's samples at these counts; None unless constant in total or per device."""
    samples = {point.devices: point.samples for point in points}
    totals_by_devices = {devices: float(total) for devices, total in samples.items() if total}
    if len(totals_by_devices) < len(samples) or not totals_by_devices:
        return None
    totals = np.array(list(totals_by_devices.values()))
    if np.ptp(totals) <= SAME_WORK_TOLERANCE * totals.max():
        return np.asarray(totals.mean() * np.ones_like(at))
    per_device = totals / np.array(list(totals_by_devices), float)
    if np.ptp(per_device) <= SAME_WORK_TOLERANCE * per_device.max():
        return np.asarray(per_device.mean() * at)
    return None


def _fit_spans(points: Sequence[Point], counts: Floats) -> tuple[tuple[SpanLaw, ...], float]:
    """Return the laws of all spans but training, and the 90 % relative error of their sum."""
    names = dict.fromkeys(name for point in points for name in point.complete if name != "train")
    measured = [np.array([p.complete.get(name, ZERO).value for p in points]) for name in names]
    spans = tuple(_fit_span(name, counts, seconds) for name, seconds in zip(names, measured))
    total = sum(measured, np.zeros_like(counts))
    if len(counts) < 3 or total.min() <= 0:  # Two points have no residual.
        return spans, 0.0
    error = float(np.sqrt(np.square(_sum_seconds(spans, counts) / total - 1).mean()))
    return spans, student_t_quantile(len(counts) - 2) * error


def _sum_seconds(spans: Sequence[SpanLaw], at: Floats) -> Floats:
    return sum((span.seconds(at) for span in spans), np.zeros_like(at))


def _fit_span(name: str, counts: Floats, seconds: Floats) -> SpanLaw:
    """Return the law of one span; ``shared`` is 0 with fewer than four points."""
    if seconds.max() <= 0:
        return SpanLaw(name, 0.0, 0.0, 0.0)
    terms = np.stack([np.ones_like(counts), np.log2(counts), 1 / counts], axis=1)
    # The fit minimises relative errors, which need a target above 0.
    target = np.maximum(seconds, 0.01 * seconds.max())
    coefficients = nonnegative_least_squares(terms if len(counts) > 3 else terms[:, :2], target)
    fixed, growing, shared = (*map(float, coefficients), 0.0)[:3]  # 0.0 if shared is not fitted.
    return SpanLaw(name, fixed, growing, shared)
