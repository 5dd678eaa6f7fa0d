"""Another kind of device: how many times faster it is, and no word of efficiency.

Efficiency holds a speedup against the growth in devices, and speaks of devices
of one kind only. Between kinds the same ratio is called acceleration.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from scalewise.analysis.measure.curve import Point, ScalingCurve, same_work
from scalewise.analysis.measure.estimate import Estimate
from scalewise.spec import StudySpec

SAME_KIND_FIELDS: dict[str, Any] = dict.fromkeys(
    ("ideal", "speedup", "speedup_time", "speedup_epoch", "efficiency", "serial_fraction")
)
"""What only devices of one kind have."""
GAIN_FIELDS: dict[str, Any] = dict.fromkeys(("gain", "gain_absolute"))


def compare_to_other_devices(curve: ScalingCurve) -> ScalingCurve:
    """Return a curve whose points on other devices than the baseline's are accelerated by them.

    Hosts differ, and a study may meet another kind of device at another scale.
    """
    base = curve.baseline
    points = []
    for point, previous in zip(curve.points, [base, *curve.points]):
        if not same_device_kind(point, previous):
            point = replace(point, **GAIN_FIELDS)
        if not same_device_kind(point, base):
            point = _accelerated(replace(point, **SAME_KIND_FIELDS), base)
            told = f"{point.named} against {point.accelerated_from}: acceleration, not efficiency"
            point = replace(point, warnings=(*point.warnings, told))
        points.append(point)
    return replace(curve, points=tuple(points))


def compare_device_kinds(study: StudySpec, curves: Sequence[ScalingCurve]) -> list[ScalingCurve]:
    """Return a study's curves, each point held against the first kind of device it varies.

    A curve of one point says nothing of scaling there.
    """
    kinds = [str(kind) for kind in study.vary.get("device", ())]
    if len(kinds) < 2:
        return list(curves)
    found = []
    for curve in curves:
        first = _first_of(kinds, [each for each in curves if _differ_in_device(each, curve)])
        base = {(p.devices, p.nodes): p for p in first.points}
        points = list(curve.points)
        if len(points) == 1:
            points = [replace(points[0], **SAME_KIND_FIELDS)]
        if curve is not first:
            there = [base.get((p.devices, p.nodes)) for p in points]
            points = [_accelerated(p, b) if b else p for p, b in zip(points, there)]
        found.append(replace(curve, points=tuple(points)))
    return found


def _first_of(kinds: Sequence[str], curves: Sequence[ScalingCurve]) -> ScalingCurve:
    return min(curves, key=lambda each: kinds.index(str(each.where["device"])))


def _differ_in_device(curve: ScalingCurve, other: ScalingCurve) -> bool:
    """Say whether two curves have all in common but their device."""
    return {**curve.where, "device": None} == {**other.where, "device": None}


def _accelerated(point: Point, base: Point) -> Point:
    epochs = same_work(point, base)
    return replace(
        point,
        acceleration=_ratio(point.throughput, base.throughput),
        acceleration_epoch=_ratio(base.epoch_time, point.epoch_time) if epochs else None,
        acceleration_first=_ratio(base.first_epoch_time, point.first_epoch_time)
        if epochs
        else None,
        accelerated_from=base.named,
    )


def _ratio(upper: Estimate | None, lower: Estimate | None) -> Estimate | None:
    return upper / lower if upper and lower else None


def same_device_kind(point: Point, other: Point) -> bool:
    """Say whether two points computed on the same kind of device, as far as that is known."""
    return None in (point.device_name, other.device_name) or point.device_name == other.device_name
