"""A number of devices that a proposal asks for: what it gives, what it costs, what supports it."""

from dataclasses import dataclass
from typing import Literal

from scalewise.analysis.full_run import per_unit_of_work
from scalewise.analysis.measure import Doubt, Estimate, Point, ScalingCurve
from scalewise.analysis.measure.curve import same_work
from scalewise.analysis.predict import PredictedPoint, predict
from scalewise.analysis.predict.series import Unknown
from scalewise.errors import SpecError, parameter

Basis = Literal["measured", "between", "beyond"]
"""Whether a scale was measured, or lies between or beyond the measured numbers of devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedScale:
    """One number of devices; estimates of a scale that was not measured are predicted."""

    devices: int
    nodes: int | None
    basis: Basis
    largest: int
    """The largest measured number of devices."""
    throughput: Estimate | None = None
    efficiency: Estimate | None = None
    """By throughput against the baseline; by time if only times are known."""
    time: Estimate | None = None
    """Seconds of the full run, of the measured job, or of a unit of work."""
    time_efficiency: float | None = None
    """The baseline's time / this time / growth in devices; None if the work differs."""
    device_hours: Estimate | None = None
    node_hours: Estimate | None = None
    baseline_device_hours: float | None = None
    """Device-hours of the same work on the fewest devices; None if the work differs."""
    doubts: tuple[Doubt, ...] = ()
    """Doubts about its measured point; of a prediction, those about the curve and about how far it
    reaches.
    """
    unknown: Unknown | None = None
    """The property of this scale that no measurement shows."""

    @property
    def supported(self) -> bool:
        """Whether the data supports it: measured, or predicted and nothing makes that doubtful."""
        if self.basis == "measured":
            return not any(doubt.severity == "blocks" for doubt in self.doubts)
        return self.unknown is None and all(doubt.severity == "notes" for doubt in self.doubts)


def requested_scale(curve: ScalingCurve, devices: int) -> RequestedScale:
    """Return the measured or predicted values of this number of devices, for the full run if the
    curve has one; of a rehearsal, per unit of work.
    """
    if devices < 1:
        raise SpecError(
            f"a number of devices must be at least 1, got {devices}",
            hint=f"for example {parameter('request', 16)}",
        )
    curve = per_unit_of_work(curve)
    counts = [point.devices for point in curve.points]
    measured = curve.point_at(devices)
    point: Point | PredictedPoint
    doubts = tuple(doubt for doubt in curve.doubts if doubt.devices == devices)
    unknown, basis = None, "measured"
    if measured:
        point, efficiency = measured, measured.efficiency
    else:
        prediction = predict(curve, [devices])
        point = prediction.at(devices)
        efficiency = _predicted_efficiency(curve, point)
        doubts = prediction.doubts
        unknown = point.unknown
        basis = "between" if min(counts) < devices < max(counts) else "beyond"
    base = curve.baseline
    is_comparable = base.time is not None and (measured is None or same_work(measured, base))
    growth = devices / base.devices
    return RequestedScale(
        devices=devices,
        nodes=point.nodes,
        basis=basis,  # type: ignore[arg-type]
        largest=max(counts),
        throughput=point.throughput,
        efficiency=efficiency,
        time=point.time,
        time_efficiency=base.time.value / point.time.value / growth
        if is_comparable and base.time and point.time
        else None,
        device_hours=point.time and point.time * (devices / 3600),
        node_hours=point.time * (point.nodes / 3600) if point.time and point.nodes else None,
        baseline_device_hours=base.time.value * base.devices / 3600
        if is_comparable and base.time
        else None,
        doubts=doubts,
        unknown=unknown,
    )


def _predicted_efficiency(curve: ScalingCurve, point: PredictedPoint) -> Estimate | None:
    """Return the efficiency by throughput, or by time if no throughput is known."""
    base = curve.baseline
    growth = point.devices / base.devices
    if base.throughput and point.throughput:
        return point.throughput * (1 / (base.throughput.value * growth))
    if base.throughput or not (base.time and point.time):
        return None
    ideal = base.time.value / growth
    return point.time.through(lambda seconds: ideal / seconds)
