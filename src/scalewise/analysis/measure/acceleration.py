"""Acceleration: the ratio of throughputs on two kinds of device. It is not an efficiency."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from scalewise.analysis.measure.curve import ScalingCurve, ratio, same_work
from scalewise.analysis.measure.doubt import Doubt
from scalewise.analysis.measure.point import Point
from scalewise.spec import StudySpec

EMPTY_SCALING_FIELDS: dict[str, Any] = dict.fromkeys(
    ("ideal", "speedup", "speedup_time", "speedup_epoch", "efficiency", "serial_fraction")
)
"""None for each field of a point that is defined only between devices of one kind."""
EMPTY_GAIN_FIELDS: dict[str, Any] = dict.fromkeys(("gain", "gain_absolute"))
"""None for each field that compares throughput with the previous point."""


def compare_to_other_devices(curve: ScalingCurve) -> ScalingCurve:
    """Return the curve with acceleration, not scaling, at points on another kind of device."""
    base = curve.baseline
    points = []
    for point, previous in zip(curve.points, [base, *curve.points]):
        if not same_device_kind(point, previous):
            point = replace(point, **EMPTY_GAIN_FIELDS)
        if not same_device_kind(point, base):
            point = _with_acceleration(replace(point, **EMPTY_SCALING_FIELDS), base)
            labels = {"device": point.device_label, "baseline": base.device_label}
            doubt = Doubt("other device", labels)
            point = replace(point, warnings=(*point.warnings, doubt))
        points.append(point)
    return replace(curve, points=tuple(points))


def compare_device_kinds(study: StudySpec, curves: Sequence[ScalingCurve]) -> list[ScalingCurve]:
    """Return a study's curves with accelerations: each point is compared with the same topology on
    the first kind of device in the study. The scaling fields of a curve of one point become None.
    """
    kinds = [str(kind) for kind in study.vary.get("device", ())]
    if len(kinds) < 2:
        return list(curves)
    compared = []
    for curve in curves:
        settings = {**curve.where, "device": None}
        siblings = [other for other in curves if {**other.where, "device": None} == settings]
        reference = min(siblings, key=lambda sibling: kinds.index(str(sibling.where["device"])))
        base_points = {(p.devices, p.nodes): p for p in reference.points}
        points = list(curve.points)
        if len(points) == 1:
            points = [replace(points[0], **EMPTY_SCALING_FIELDS)]
        if curve is not reference:
            pairs = [(p, base_points.get((p.devices, p.nodes))) for p in points]
            points = [_with_acceleration(point, base) if base else point for point, base in pairs]
        compared.append(replace(curve, points=tuple(points)))
    return compared


def _with_acceleration(point: Point, base: Point) -> Point:
    equal_work = same_work(point, base)
    return replace(
        point,
        acceleration=ratio(point.throughput, base.throughput),
        acceleration_epoch=ratio(base.epoch_time, point.epoch_time) if equal_work else None,
        acceleration_first=ratio(base.first_epoch_time, point.first_epoch_time)
        if equal_work
        else None,
        accelerated_from=base.device_label,
    )


def same_device_kind(point: Point, other: Point) -> bool:
    """Say whether two points have the same kind of device; an unknown kind counts as the same."""
    return None in (point.device_name, other.device_name) or point.device_name == other.device_name
