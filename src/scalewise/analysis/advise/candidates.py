"""Scales that an advice considers. A scale is a number of devices, measured or predicted, with its
time, cost and energy under the conditions of the user (a target, interruptions, a queue).
"""

import math
from dataclasses import replace

from scalewise.analysis.advise.conditions import ResolvedConditions
from scalewise.analysis.advise.interruptions import MAX_SLOWDOWN
from scalewise.analysis.advise.scale import Scale
from scalewise.analysis.cost.energy_use import Power, widened
from scalewise.analysis.cost.rates import Rate
from scalewise.analysis.measure import Estimate
from scalewise.analysis.predict import PredictedPoint, Prediction
from scalewise.analysis.predict.series import curve_series
from scalewise.errors import SpecError, parameter


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
                cost=device_hours * rate.per_device_hour if rate else None,
                currency=rate.currency if rate else None,
                energy=_energy(as_measured, before_wait.time, power) if power else None,
            )
        # The wait in the queue comes last: it costs no device-hours and no energy.
        scales.append(conditions.wait.applied(priced) if conditions.wait else priced)
    if not scales and conditions.interruptions:
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
    measured = next((p for p in curve.points if p.devices == point.devices), None)
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
        throughput=point.throughput,
        time=point.time if has_times else None,
        efficiency=_efficiency(point, prediction),
        energy=measured.energy if measured else None,
    )


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


def _efficiency(point: PredictedPoint, prediction: Prediction) -> Estimate | None:
    """Return the efficiency by throughput if the baseline has it, else by time; None if unknown."""
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
