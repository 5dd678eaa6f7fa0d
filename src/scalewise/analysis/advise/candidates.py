"""The candidates of an advice. Each is a scale: a measured or predicted number of devices with its
time, cost and energy under the given conditions (a target, interruptions, a queue).
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
    """Return every scale on which the job finishes; with times only if all have comparable ones."""
    # Times of unequal work cannot be compared.
    equal_work = curve_series(prediction.curve, "time") is not None
    by_time = equal_work and all(point.time for point in prediction.points)
    scales = []
    points = [point for point in prediction.points if by_time or point.throughput]
    for point in points:
        as_measured = _scale_of(point, prediction, by_time=by_time, whole_nodes=whole_nodes)
        running = conditions.with_target_and_interruptions(as_measured)
        if running is None:  # Interruptions would keep the job from finishing.
            continue
        # A measured energy is that of the measured time, not of the running time.
        priced = replace(running, energy=None)
        if running.time:
            device_hours = running.time * (running.charged / 3600)
            priced = replace(
                priced,
                device_hours=device_hours,
                cost=device_hours * rate.per_device_hour if rate else None,
                currency=rate.currency if rate else None,
                energy=_energy(as_measured, running.time, power) if power else None,
            )
        # The wait in the queue comes last: it costs no device-hours and no energy.
        scales.append(conditions.wait.applied(priced) if conditions.wait else priced)
    if not scales and conditions.interruptions:
        raise SpecError(
            f"interrupted every {conditions.interruptions.every.text}, no scale finishes: it would "
            f"take more than {MAX_SLOWDOWN:g} times as long",
            hint="save and restart faster, use fewer devices, or devices that are interrupted "
            "less often",
        )
    return scales


def _scale_of(
    point: PredictedPoint, prediction: Prediction, *, by_time: bool, whole_nodes: bool
) -> Scale:
    """Return the scale of the job as it was measured, without conditions and prices."""
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
        time=point.time if by_time else None,
        efficiency=_efficiency(point, prediction),
        energy=measured.energy if measured else None,
    )


def _energy(as_measured: Scale, running_time: Estimate, power: Power) -> Estimate:
    """Return the joules of a running time, at the watts of the job as it was measured."""
    time, measured = as_measured.time, as_measured.energy
    if time is None:
        return power.energy(running_time * as_measured.devices)
    if measured is None:
        predicted = power.energy(time * as_measured.devices)
        if running_time == time:
            return predicted
        joules, spread = predicted.value, power.spread
    else:
        # A measured energy keeps its value; the interval combines its own and that of the time.
        joules = measured.value
        low, high = measured.low, measured.high
        spread = math.log(high / low) / 2 if low and high else 0.0
    return widened(running_time.through(lambda seconds: joules * seconds / time.value), spread)


def _efficiency(point: PredictedPoint, prediction: Prediction) -> Estimate | None:
    """Return the efficiency against the baseline: by its throughput if known, else by its time."""
    base = prediction.curve.baseline
    growth = point.devices / base.devices
    if growth == 1:
        return Estimate(1.0, 1.0, 1.0, len(prediction.curve.points))
    if base.throughput and point.throughput:
        return point.throughput * (1 / (base.throughput.value * growth))
    if base.throughput or not (base.time and point.time):
        return None
    ideal = base.time.value / growth
    return point.time.through(lambda seconds: ideal / seconds)
