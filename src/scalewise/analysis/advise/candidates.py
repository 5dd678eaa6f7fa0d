"""Scales that an advice considers. A scale is a number of devices, measured or predicted, with its
time, cost and energy under the conditions of the user (a target, interruptions, a queue).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from numbers import Real

from scalewise.analysis.advise.conditions import ResolvedConditions
from scalewise.analysis.advise.interruptions import MAX_SLOWDOWN
from scalewise.analysis.advise.scale import Scale
from scalewise.analysis.cost.energy_use import Power, widened
from scalewise.analysis.cost.rates import Rate
from scalewise.analysis.measure import Estimate, Point, ScalingCurve
from scalewise.analysis.predict import PredictedPoint, Prediction
from scalewise.analysis.predict.extrapolation import fixed_global_batch
from scalewise.analysis.predict.series import curve_series
from scalewise.errors import NotEnoughData, SpecError, parameter
from scalewise.record.read import RunRecord


def candidate_counts(
    curve: ScalingCurve, at: Iterable[int], up_to: int | None, batch_limit: int | None
) -> list[int]:
    """Return the measured counts; with ``at`` or ``up_to`` also these and all doublings up to the
    largest of them, but no predicted count above ``batch_limit``.
    """
    measured = {point.devices for point in curve.points}
    if len(measured) < 2:
        raise NotEnoughData(
            f"advice needs measurements on 2 numbers of devices, got {len(measured)}",
            hint="measure one more, twice as large as the largest",
        )
    largest = max(measured)
    if up_to is not None and _is_finite(up_to) and up_to < largest:
        raise SpecError(
            f"{parameter('up_to', up_to)} is below the {largest} devices that were measured",
            hint=f"leave it out to choose among measured scales, or give {2 * largest} or more",
        )
    asked = [*at, *([] if up_to is None else [up_to])]
    for count in asked:
        if count in range(1, largest) and count not in measured:
            raise SpecError(
                f"{count} devices are fewer than the {largest} that were measured",
                hint=f"measure {count}; advice considers measured scales and larger ones",
            )
    # Values that are no counts are refused later, by predict().
    last = max((int(count) for count in asked if _is_finite(count)), default=largest)
    if batch_limit is not None and batch_limit < last:
        asked = [count for count in asked if not _is_finite(count) or count <= batch_limit]
        last = max(batch_limit, largest)
        asked.append(last)
    # bit_length() is log2, rounded down, + 1: the end of the range is excluded.
    doublings = [largest * 2**step for step in range(1, (last // largest).bit_length())]
    return [*measured, *doublings, *asked]


def _is_finite(count: object) -> bool:
    return isinstance(count, Real) and math.isfinite(count)


def batch_limit(curve: ScalingCurve, records: Sequence[RunRecord] = ()) -> int | None:
    """Return the most devices that the global batch of strong scaling can feed, one sample each.
    None if it is unknown, or if several devices share one model.
    """
    if any(record.spec.replicas < record.spec.topology.world for record in records):
        return None
    return fixed_global_batch(curve)


def candidate_scales(
    prediction: Prediction,
    conditions: ResolvedConditions,
    rate: Rate | None,
    power: Power | None,
    *,
    whole_nodes: bool,
) -> list[Scale]:
    """Return every scale on which the job finishes, with its time if all times can be compared."""
    # curve_series() has no times of unequal work: they cannot be compared.
    equal_work = curve_series(prediction.curve, "time") is not None
    has_times = equal_work and all(point.time for point in prediction.points)
    scales = []
    points = [point for point in prediction.points if has_times or point.throughput]
    for point in points:
        as_measured = _scale_of(point, prediction, has_times=has_times, whole_nodes=whole_nodes)
        before_wait = conditions.with_target_and_interruptions(as_measured)
        if before_wait is None:  # Interruptions would keep the job from finishing.
            continue
        # The measured energy belongs to the measured time; that of the new time is set below.
        priced = replace(before_wait, energy=None)
        if before_wait.time:
            device_hours = before_wait.time * (before_wait.charged / 3600)
            priced = replace(
                priced,
                device_hours=device_hours,
                cost=rate.cost(device_hours) if rate else None,
                currency=rate.currency if rate else None,
                energy=_energy(as_measured, before_wait.time, power) if power else None,
            )
        # The wait in the queue comes last: it costs no device-hours and no energy.
        scales.append(conditions.wait.applied(priced) if conditions.wait else priced)
    if not any(scale.measured for scale in scales) and conditions.interruptions:
        raise SpecError(
            f"interrupted every {conditions.interruptions.every.text}, no scale finishes: the job "
            f"would take more than {MAX_SLOWDOWN:g} times as long",
            hint="save and restart faster, use fewer devices, or devices that are interrupted "
            "less often",
        )
    return scales


def _scale_of(
    point: PredictedPoint, prediction: Prediction, *, has_times: bool, whole_nodes: bool
) -> Scale:
    """Return the scale of a point of the measured job, before conditions and prices apply."""
    curve = prediction.curve
    measured = curve.point_at(point.devices)
    nodes = measured.nodes if measured else point.nodes
    per_node = curve.devices_per_node if whole_nodes else 1
    if per_node is None:
        raise SpecError(
            "whole nodes cannot be charged: the devices per node are not known",
            hint=f"give {parameter('devices_per_node', 4)}",
        )
    return Scale(
        devices=point.devices,
        nodes=nodes,
        charged=nodes * per_node if whole_nodes and nodes else point.devices,
        measured=measured is not None,
        fitted_interval=measured is not None and not _has_interval(measured, has_times=has_times),
        throughput=point.throughput,
        time=point.time if has_times else None,
        efficiency=_efficiency(point, prediction, measured),
        energy=measured.energy if measured else None,
    )


def _has_interval(point: Point, *, has_times: bool) -> bool:
    estimate = point.time if has_times else point.throughput
    return estimate is not None and estimate.low is not None


def _energy(as_measured: Scale, new_time: Estimate, power: Power) -> Estimate:
    """Return the joules of the job if it takes ``new_time``, with the power of ``as_measured``."""
    time, measured = as_measured.time, as_measured.energy
    if time is None:
        return power.energy(new_time * as_measured.devices)
    if measured is None:
        predicted = power.energy(time * as_measured.devices)
        if new_time == time:
            return predicted
        joules, spread = predicted.value, power.spread
    else:
        # The interval combines the error of the measured energy with that of the new time.
        joules = measured.value
        low, high = measured.low, measured.high
        spread = math.log(high / low) / 2 if low and high else 0.0
    return widened(new_time.through(lambda seconds: joules * seconds / time.value), spread)


def _efficiency(
    point: PredictedPoint, prediction: Prediction, measured: Point | None
) -> Estimate | None:
    """Return the efficiency by throughput if the baseline has it, else by time; None if unknown.
    The measured one has the interval of its repeats.
    """
    if measured and measured.efficiency and measured.efficiency.low is not None:
        return measured.efficiency
    base = prediction.curve.baseline
    devices_ratio = point.devices / base.devices
    if devices_ratio == 1:
        return Estimate(1.0, 1.0, 1.0, len(prediction.curve.points))
    if base.throughput and point.throughput:
        return point.throughput * (1 / (base.throughput.value * devices_ratio))
    if base.throughput or not (base.time and point.time):
        return None
    ideal = base.time.value / devices_ratio
    return point.time.through(lambda seconds: ideal / seconds)
