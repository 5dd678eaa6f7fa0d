"""The complete time of a job, span by span, from its records.

Training follows the throughput. Every other span (launch, validate, …) follows

    seconds(N) = fixed + growing log2 N + shared / N

A launch is mostly fixed, a rendezvous grows, a validation is shared by all devices.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scalewise.analysis.measure import Estimate, Point, ScalingCurve
from scalewise.analysis.measure.curve import SAME_WORK_TOLERANCE
from scalewise.analysis.measure.estimate import student_t_quantile
from scalewise.analysis.number_format import format_number
from scalewise.analysis.predict.forecast import forecast
from scalewise.analysis.predict.laws import nonnegative_least_squares
from scalewise.analysis.predict.series import Floats, make_series

MIN_START_SPREAD = 0.05
"""Smallest half-width of the start of a job, as a share: no two launches are equal."""
NEGLIGIBLE_SECONDS = 1e-6


@dataclass(frozen=True, slots=True)
class SpanLaw:
    """Seconds of one span of a job against devices."""

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
    """The complete time at each requested count, and the law of every span but training."""

    times: tuple[Estimate, ...]
    span_laws: tuple[SpanLaw, ...]

    def __str__(self) -> str:
        formulas = [
            str(span)
            for span in self.span_laws
            if span.fixed + span.growing + span.shared > NEGLIGIBLE_SECONDS
        ]
        return "T(N) = training + " + " + ".join(formulas) + " seconds"


def predict_complete_time(curve: ScalingCurve, at: Floats) -> CompleteTime | None:
    """Return the complete time at these counts from recorded spans; None without them."""
    points = [point for point in curve.points if "train" in point.complete and point.time]
    samples = samples_at(points, at)
    if len({point.devices for point in points}) < 2 or samples is None:
        return None
    # The cost of a sample is predicted, as for a throughput, and multiplied by the samples.
    rates = {
        point.devices: point.samples / point.complete["train"].value
        for point in reversed(points)
        if point.samples and point.complete["train"].value > 0
    }
    devices = sorted(rates)
    throughputs = [rates[count] for count in devices]
    measured = make_series(
        devices, throughputs, scaling=curve.scaling, per_node=curve.devices_per_node
    )
    made = forecast(measured, at)
    training = [samples * np.exp(log) / at for log in (made.middle, made.low, made.high)]
    counts = np.array([float(point.devices) for point in points])
    names = dict.fromkeys(name for point in points for name in point.complete if name != "train")
    spans = tuple(_fit_span(name, counts, points) for name in names)
    start = np.sum([span.seconds(at) for span in spans], axis=0) if spans else np.zeros_like(at)
    spread = math.hypot(MIN_START_SPREAD, _spread(spans, counts, points))
    times = []
    columns = (column.tolist() for column in (*training, start, at))
    for value, low, high, seconds, count in zip(*columns):
        doublings = max(0.0, math.log2(count / counts[-1]))
        half = spread * math.sqrt(1 + doublings)
        below = math.hypot(value - low, -seconds * math.expm1(-half))
        above = math.hypot(high - value, seconds * math.expm1(half))
        total = value + seconds
        times.append(Estimate(total, total - below, total + above, len(points)))
    return CompleteTime(tuple(times), spans)


def samples_at(points: Sequence[Point], at: Floats) -> Floats | None:
    """Return the samples of a job at these counts; None where they are unknown or irregular.

    They are either the same on any number of devices, or the same per device.
    """
    samples = {point.devices: point.samples for point in points}
    measured = {devices: float(count) for devices, count in samples.items() if count}
    if len(measured) < len(samples) or not measured:
        return None
    counts, totals = np.array(list(measured), float), np.array(list(measured.values()))
    if np.ptp(totals) <= SAME_WORK_TOLERANCE * totals.max():
        return np.asarray(totals.mean() * np.ones_like(at))
    per_device = totals / counts
    if np.ptp(per_device) <= SAME_WORK_TOLERANCE * per_device.max():
        return np.asarray(per_device.mean() * at)
    return None


def _measured_seconds(name: str, points: Sequence[Point]) -> Floats:
    return np.array([p.complete[name].value if name in p.complete else 0.0 for p in points])


def _fit_span(name: str, counts: Floats, points: Sequence[Point]) -> SpanLaw:
    """Fit one span; its shared part needs four points."""
    seconds = _measured_seconds(name, points)
    if seconds.max() <= 0:
        return SpanLaw(name, max(float(seconds.mean()), 0.0), 0.0, 0.0)
    columns = np.stack([np.ones_like(counts), np.log2(counts), 1 / counts], axis=1)
    # Relative errors need a target above 0.
    target = np.maximum(seconds, 0.01 * seconds.max())
    sizes = nonnegative_least_squares(columns if len(counts) > 3 else columns[:, :2], target)
    fixed, growing, shared = (*map(float, sizes), 0.0)[:3]
    return SpanLaw(name, fixed, growing, shared)


def _spread(spans: Sequence[SpanLaw], counts: Floats, points: Sequence[Point]) -> float:
    """Return the 90 % relative error of all spans together at the measured points."""
    fitted = sum((span.seconds(counts) for span in spans), np.zeros_like(counts))
    measured = sum((_measured_seconds(span.name, points) for span in spans), np.zeros_like(counts))
    if len(counts) < 3 or measured.min() <= 0:
        return 0.0
    error = float(np.sqrt(np.square(fitted / measured - 1).mean()))
    return student_t_quantile(len(counts) - 2) * error
