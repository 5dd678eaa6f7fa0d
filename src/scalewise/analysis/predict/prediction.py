"""Predict larger device counts, fit textbook laws for comparison, find what to measure next."""

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from scalewise import plugins
from scalewise.analysis.measure import Doubt, Estimate, Point, ScalingCurve
from scalewise.analysis.measure.doubt import widening
from scalewise.analysis.measure.table_numbers import MAX_DEVICES
from scalewise.analysis.predict.complete_time import CompleteTime, predict_complete_time
from scalewise.analysis.predict.downsample import downsample
from scalewise.analysis.predict.extrapolation import extrapolation_doubts
from scalewise.analysis.predict.forecast import Forecast, forecast
from scalewise.analysis.predict.laws import Fit
from scalewise.analysis.predict.next_measurement import NextMeasurement, best_next_measurement
from scalewise.analysis.predict.outliers import Outlier, find_outliers
from scalewise.analysis.predict.series import (
    Metric,
    Series,
    Unknown,
    curve_series,
    require_points,
)
from scalewise.errors import NotEnoughData, SpecError, parameter, shown

SIMULATE_EXAMPLE = (
    "scalewise predict FOLDER --at 16 --simulate --devices-per-node 8 --link-inside 200GB/s,5us "
    "--link-between 25GB/s,20us"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldOutCheck:
    """One metric of a point that was held out: predicted without it, and measured."""

    metric: Metric
    predicted: Estimate
    measured: Estimate
    fewest: int
    """The smallest number of devices that it was predicted from."""
    most: int
    """The largest number of devices that it was predicted from."""

    @property
    def error(self) -> float:
        """The error of the prediction, as a share of the measured value."""
        return self.predicted.value / self.measured.value - 1

    @property
    def inside(self) -> bool:
        """Whether the measured value lies in the 90 % interval of the prediction."""
        low, high = self.predicted.low, self.predicted.high
        return low is not None and high is not None and low <= self.measured.value <= high


@dataclass(frozen=True, kw_only=True)
class PredictedPoint:
    """Expected throughput and time on one number of devices."""

    devices: int
    nodes: int | None = None
    throughput: Estimate | None = None
    time: Estimate | None = None
    """Seconds of the complete job, from launch to end."""
    reach: float = 1.0
    """The device count divided by the largest measured device count."""
    measured: bool = False
    unknown: Unknown | None = None
    """The property of this scale that no measurement shows: its network or its node size."""
    checks: tuple[HoldOutCheck, ...] = ()
    """If this point was measured and held out: its metrics, predicted and measured."""


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Expected throughput and time on other device counts; all intervals are 90 %."""

    curve: ScalingCurve
    points: tuple[PredictedPoint, ...]
    laws: tuple[Fit, ...]
    """Textbook laws, for comparison only: not used in ``points``. Per metric, the closest first."""
    next: NextMeasurement | None
    """The next measurement: the one that would most narrow the interval of the largest count."""
    outliers: tuple[Outlier, ...] = ()
    """Measured points that the other points do not predict."""
    main: Series = field(repr=False)
    """Measured throughput by device count; the time if throughput has fewer than two counts."""
    forecasts: tuple[Forecast, ...] = field(repr=False)
    """One per metric; the metric time is left out if ``complete_time`` predicts it."""
    complete_time: CompleteTime | None = field(repr=False)
    """The time from launch to end, span by span; None without spans at two device counts."""
    doubts: tuple[Doubt, ...] = ()
    """The doubts about the curve and about the predicted numbers of devices."""
    sentences: tuple[str, ...] = ()
    """How the estimates arise and what to measure next; set by ``report.text.prediction``."""

    def at(self, devices: int) -> PredictedPoint:
        """Return the prediction for this many devices."""
        for point in self.points:
            if point.devices == devices:
                return point
        counts = ", ".join(str(point.devices) for point in self.points)
        raise SpecError(
            f"no prediction for {devices} devices; there are: {counts}",
            hint=f"predict(curve, at=[{devices}])",
        )

    @property
    def law(self) -> str:
        """The formulas of the estimates in ``points``, in one line; not those in ``laws``."""
        return "; ".join(map(str, filter(None, [*self.forecasts, self.complete_time])))

    def efficiency(self, point: Point | PredictedPoint) -> float | None:
        """Return the efficiency against the baseline, by throughput; by time if it has none."""
        base = self.curve.baseline
        growth = point.devices / base.devices
        if base.throughput and point.throughput:
            return point.throughput.value / base.throughput.value / growth
        if base.throughput or not (base.time and point.time):  # Never mix the two metrics.
            return None
        return base.time.value / point.time.value / growth

    @property
    def not_correct(self) -> tuple[str, ...]:
        """Reasons why the measured training is not correct; empty if it is correct."""
        return self.curve.not_correct

    def __str__(self) -> str:
        return "\n".join([*self.sentences, self.law])


def predict(curve: ScalingCurve, at: Iterable[int]) -> Prediction:
    """Predict throughput and time of a curve on these numbers of devices."""
    kinds = list(dict.fromkeys(point.device_name for point in curve.points if point.device_name))
    if len(kinds) > 1:  # Device count alone cannot explain differences between kinds of device.
        raise NotEnoughData(
            f"{curve.name} was measured on several kinds of device: {', '.join(kinds)}",
            hint="measure every scale on one kind; `scalewise measure` shows which kind is faster",
        )
    counts = _checked_counts(curve, at)
    measured = [curve_series(curve, "throughput"), curve_series(curve, "time")]
    main = _main_series(curve, measured)
    usable = [points for points in measured if points and len(points.devices) > 1]
    fitted = [downsample(points) for points in usable]
    targets = np.array(counts, float)
    complete_time = predict_complete_time(curve, targets)
    new_doubts = extrapolation_doubts(curve, counts)
    curve_error = widening(curve.doubts)
    forecasts = {points.metric: forecast(points, targets) for points in fitted}
    estimates = {metric: result.estimates() for metric, result in forecasts.items()}
    if complete_time:
        estimates["time"] = complete_time.times
        forecasts.pop("time", None)
    points = []
    for index, count in enumerate(counts):
        measured_point = curve.point_at(count)
        # Every measured point contributes to a prediction, so all their doubts widen it.
        error = curve_error if measured_point is None else 0.0
        error = math.hypot(error, widening(new_doubts, count))
        expected = {
            metric: _include_measured(
                values[index].widened(error), getattr(measured_point, metric, None)
            )
            for metric, values in estimates.items()
        }
        point = PredictedPoint(
            devices=count,
            nodes=main.node_count(count),
            throughput=expected.get("throughput"),
            time=expected.get("time"),
            reach=count / main.last,
            measured=count in main.devices,
            unknown=main.unknown(count),
        )
        points.append(point)
    return Prediction(
        curve=curve,
        points=tuple(points),
        laws=tuple(fit for series in fitted for fit in _fit_laws(series)),
        next=best_next_measurement(downsample(main), max(counts)),
        outliers=tuple(
            row for series in usable if series.metric in forecasts for row in find_outliers(series)
        ),
        main=main,
        forecasts=tuple(forecasts.values()),
        complete_time=complete_time,
        doubts=(*curve.doubts, *new_doubts),
    )


def _main_series(curve: ScalingCurve, measured: Sequence[Series | None]) -> Series:
    """Return throughput if it has two device counts, else time; raise if neither has two."""
    available = [points for points in measured if points]
    # Never empty: a curve has a point, and a point has a throughput or a time.
    main = next((points for points in available if len(points.devices) > 1), available[0])
    try:
        require_points(main, 2, "a prediction")
    except NotEnoughData as error:
        if curve.baseline.steps:  # A recorded run, not a row of a table.
            error.hint += f"; or simulate from this run: {SIMULATE_EXAMPLE}"
        raise
    return main


def _include_measured(predicted: Estimate, measured: Estimate | None) -> Estimate:
    """Return the measured estimate. What was measured once has no interval: it gets the predicted
    one, extended to the measured value.
    """
    if measured is None:
        return predicted
    if measured.low is not None:
        return measured
    ends = [measured.value, *(end for end in (predicted.low, predicted.high) if end)]
    return Estimate(measured.value, min(ends), max(ends), predicted.count)


def _fit_laws(points: Series) -> Sequence[Fit]:
    """Return every law that can be fitted to these points, the closest first."""
    fits = []
    for name in plugins.available("laws"):
        with suppress(NotEnoughData):
            fits.append(_fit(plugins.load("laws", name), points))
    return sorted(fits, key=lambda fit: fit.error)


@lru_cache(maxsize=256)
def _fit(law: Callable[[Series], Fit], points: Series) -> Fit:
    return law(points)


def _checked_counts(curve: ScalingCurve, at: Iterable[int]) -> list[int]:
    """Return the counts, sorted and without repeats; raise if one of them cannot be predicted."""
    counts = list(at)
    measured = [point.devices for point in curve.points]
    smallest, largest = min(measured), max(measured)
    example = f"for example {parameter('at', [2 * largest])}"
    if not counts:
        raise SpecError("no number of devices to predict", hint=example)
    for count in counts:
        is_number = isinstance(count, (int, float, np.number)) and not isinstance(count, bool)
        if not is_number or not math.isfinite(count) or count != int(count):
            raise SpecError(f"a number of devices must be whole, got {shown(count)}", hint=example)
        if not 1 <= count <= MAX_DEVICES:
            raise SpecError(
                f"a number of devices must be from 1 to {MAX_DEVICES:,}, got {count:,}",
                hint=example,
            )
        if count < smallest:
            raise SpecError(
                f"{count} devices are fewer than the {smallest} that were measured",
                hint=f"predict more than {smallest} devices, or measure {count}",
            )
    return sorted({int(count) for count in counts})
