"""Hold-out checks: a measured point, predicted from the points with fewer devices only."""

from collections.abc import Iterable
from dataclasses import replace
from typing import get_args

from scalewise.analysis.measure import ScalingCurve
from scalewise.analysis.number_format import format_count
from scalewise.analysis.predict.prediction import (
    HoldOutCheck,
    PredictedPoint,
    Prediction,
    predict,
)
from scalewise.analysis.predict.series import Metric
from scalewise.errors import NotEnoughData


def predict_and_check(curve: ScalingCurve, at: Iterable[int]) -> Prediction:
    """Return ``predict(curve, at)``, but with measured points held out: each is predicted from the
    points with fewer devices and compared with what was measured (``PredictedPoint.checks``).
    """
    prediction = predict(curve, at)
    measured = {point.devices for point in curve.points}
    points = []
    for point in prediction.points:
        held_out = _hold_out(curve, point.devices) if point.devices in measured else point
        points.append(held_out if held_out.checks else point)
    return replace(prediction, points=tuple(points))


def _hold_out(curve: ScalingCurve, devices: int) -> PredictedPoint:
    smaller = [point for point in curve.points if point.devices < devices]
    counts = sorted({point.devices for point in smaller})
    if len(counts) < 2:
        raise NotEnoughData(
            f"{format_count(devices)} cannot be checked: a prediction needs two smaller numbers of "
            f"devices, and {len(counts)} {'was' if len(counts) == 1 else 'were'} measured",
            hint="`scalewise measure` shows what was measured; predict a larger number",
        )
    # A doubt about a point that is not used does not widen the interval.
    doubts = tuple(doubt for doubt in curve.doubts if doubt.devices in (None, *counts))
    without = replace(curve, points=tuple(smaller), doubts=doubts)
    (point,) = predict(without, [devices]).points
    # Of two points with equal device counts, the first (fewer nodes) is used.
    truth = next(point for point in curve.points if point.devices == devices)
    checks = []
    for metric in get_args(Metric):
        predicted, measured = getattr(point, metric), getattr(truth, metric)
        if predicted and measured:
            check = HoldOutCheck(
                metric=metric,
                predicted=predicted,
                measured=measured,
                fewest=counts[0],
                most=counts[-1],
            )
            checks.append(check)
    return replace(point, checks=tuple(checks))
