"""Every scale that can be weighed: measured or predicted, under the conditions that hold."""

import math
from dataclasses import replace

from scalewise.analysis.advise.conditions import Settled
from scalewise.analysis.advise.scale import Scale
from scalewise.analysis.cost.energy_use import Power, widened
from scalewise.analysis.cost.rates import Rate
from scalewise.analysis.measure import Estimate
from scalewise.analysis.predict import PredictedPoint, Prediction
from scalewise.analysis.predict.series import curve_series
from scalewise.errors import SpecError


def scales_of(
    found: Prediction,
    settled: Settled,
    rate: Rate | None,
    power: Power | None,
    *,
    whole_nodes: bool,
) -> list[Scale]:
    """Return every scale that can be weighed; by time, or by throughput where times say nothing."""
    alike = curve_series(found.curve, "time") is not None  # Times of unlike work say nothing.
    by_time = alike and all(point.time for point in found.points)
    points = {point.devices: point for point in reversed(found.curve.points)}
    per_node = found.curve.devices_per_node
    if whole_nodes and per_node is None:
        raise SpecError(
            "whole nodes cannot be charged: the devices per node are not known",
            hint="--devices-per-node 4, or devices_per_node=4 in Python",
        )

    def scale(ahead: PredictedPoint) -> Scale | None:
        seen = points.get(ahead.devices)
        nodes = seen.nodes if seen else ahead.nodes
        charged = nodes * per_node if whole_nodes and nodes and per_node else ahead.devices
        measured = Scale(
            devices=ahead.devices,
            nodes=nodes,
            charged=charged,
            measured=seen is not None,
            throughput=ahead.throughput,
            time=ahead.time if by_time else None,
            efficiency=_efficiency(ahead, found),
            energy=seen.energy if seen else None,
        )
        held = settled.lived(measured)
        if held is None:
            return None
        hours = held.time * (charged / 3600) if held.time else None
        paid = replace(
            held,
            device_hours=hours,
            cost=hours * rate.per_device_hour if hours and rate else None,
            currency=rate.currency if rate else None,
            energy=_energy(measured, held.time, power) if held.time and power else None,
        )
        return settled.queued(paid)

    weighed = [scale(ahead) for ahead in found.points if by_time or ahead.throughput]
    return settled.done([each for each in weighed if each])


def _energy(measured: Scale, held: Estimate, power: Power) -> Estimate:
    """Return the joules of devices that are held so long: at the watts of the job as measured."""
    time, own = measured.time, measured.energy
    if time is None:
        return power.energy(held * measured.devices)
    if own is None:
        found = power.energy(time * measured.devices)
        if held == time:
            return found
        return widened(
            held.through(lambda seconds: found.value * seconds / time.value), power.spread
        )
    # A measured number keeps its value, within its time's range.
    off = math.log(own.high / own.low) / 2 if own.low and own.high else 0.0
    return widened(held.through(lambda seconds: own.value * seconds / time.value), off)


def _efficiency(ahead: PredictedPoint, found: Prediction) -> Estimate | None:
    """Return the efficiency against the baseline: by throughput, or by time if that is all."""
    base = found.curve.baseline
    growth = ahead.devices / base.devices
    if growth == 1:
        return Estimate(1.0, 1.0, 1.0, len(found.curve.points))
    if base.throughput and ahead.throughput:
        return ahead.throughput * (1 / (base.throughput.value * growth))
    if base.throughput or not (base.time and ahead.time):
        return None
    whole = base.time.value / growth
    return ahead.time.through(lambda seconds: whole / seconds)
