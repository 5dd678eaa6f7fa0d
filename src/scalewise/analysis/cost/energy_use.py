"""The energy that a scale takes: from measured points, or from the watts of a device.

    E = once + watts · D,    D = devices × seconds

The computation of equal work takes the same energy on any number of devices: ``once``.
``watts`` is what a device draws on top, also while it waits, so this part grows with the
device-seconds. The mean power of a device therefore falls where devices wait.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from scalewise.analysis.measure import Estimate, Point, ScalingCurve
from scalewise.analysis.measure.curve import SAME_WORK_TOLERANCE
from scalewise.analysis.measure.energy import JOULES_PER_UNIT, energy_unit, mean_device_watts
from scalewise.analysis.number_format import format_number
from scalewise.catalog.hardware import device_for_power
from scalewise.errors import SpecError
from scalewise.validate import check_positive

MAX_WATTS = 1e6
"""A device that draws more is refused as a typing error."""


@dataclass(frozen=True, slots=True)
class Power:
    """The law of a curve's energy, and its source. Its fields are keys of the JSON output."""

    once: float
    """Joules of the work itself."""
    watts: float
    """Of each device, on top of that."""
    spread: float
    """The error in logarithms: half the range of the measured watts."""
    says: str
    """The law and its source as a sentence."""
    bound: bool = False
    """Whether it is an upper bound."""

    def energy(self, device_seconds: Estimate) -> Estimate:
        """Return joules; the interval combines that of the time and that of the law."""
        joules = device_seconds.through(lambda seconds: self.once + self.watts * seconds)
        return widened(joules, self.spread)


def widened(estimate: Estimate, spread: float) -> Estimate:
    """Return an estimate whose interval also covers an error of ``spread``, in logarithms.

    >>> widened(Estimate(100.0, 100.0, 100.0), 0.0)
    Estimate(value=100.0, low=100.0, high=100.0, count=1)
    """
    return estimate / Estimate(1.0, math.exp(-spread), math.exp(spread), estimate.count)


def power_of(
    curve: ScalingCurve, device_watts: float | None = None, device: str | None = None
) -> Power | None:
    """Return the energy law of a curve; None where its power is unknown.

    A curve without measured energy needs ``device_watts``, or ``device``, a name of the
    catalog.
    """
    measured = [point for point in curve.points if point.energy and point.time]
    if device_watts is not None and device is not None:
        raise SpecError("--watts and --device exclude each other", hint="keep --watts or --device")
    if measured and (device_watts is not None or device is not None):
        raise SpecError(
            f"the energy of {curve.name} was measured",
            hint="leave --watts and --device out: they are for curves without it",
        )
    if device_watts is not None:
        check_positive("watts", device_watts, example=700)
        if device_watts > MAX_WATTS:
            raise SpecError(
                f"watts must be at most {MAX_WATTS:g}, got {device_watts:g}", hint="--watts 700"
            )
        sentence = f"Energy is {format_number(device_watts)} W, as given, × device-hours."
        return Power(0.0, float(device_watts), 0.0, sentence)
    if device is not None:
        return _max_power(device)
    return _fit_power(measured) if measured else None


def _max_power(name: str) -> Power:
    """Return the upper bound from the catalog's maximum power of a device."""
    device = device_for_power(name)
    assert device.power is not None  # drawing() refuses devices of unknown power.
    return Power(
        0.0,
        device.power,
        0.0,
        f"Energy is at most {format_number(device.power)} W × device-hours: the maximum power of "
        f"{device.name} ({device.source}; {device.date}). Waiting devices draw less, so the "
        "chances are lower bounds.",
        bound=True,
    )


def _fit_power(measured: Sequence[Point]) -> Power:
    """Fit the law to points with energy and time, by least relative error."""
    rows = [
        (point.energy.value, point.devices * point.time.value)
        for point in measured
        if point.energy and point.time
    ]
    mean_watts = [mean_device_watts(joules, seconds, 1) for joules, seconds in rows]
    if len(rows) == 1 or not _equal_work(measured):
        once, device_watts = 0.0, mean_watts[-1]
    else:
        joules, seconds = np.array(rows).T
        relative = np.stack([1 / joules, seconds / joules], axis=1)
        (once, device_watts), _ = nnls(relative, np.ones(len(rows)))
    ends = [f"{format_number(mean_watts[0])} W per device on {measured[0].devices:,}"]
    if len(measured) > 1:
        ends.append(f"{format_number(mean_watts[-1])} W on {measured[-1].devices:,}")
    count = "1 measured scale" if len(measured) == 1 else f"{len(measured)} measured scales"
    work = f"{format_energy(once)} + " if once else ""
    return Power(
        float(once),
        float(device_watts),
        math.log(max(mean_watts) / min(mean_watts)) / 2,
        f"Energy follows E = {work}{format_number(device_watts)} W × device-hours, from {count} "
        f"({', '.join(ends)}).",
    )


def _equal_work(points: Sequence[Point]) -> bool:
    """Return whether all points processed the same number of samples.

    Unknown samples count as equal, as in every table of times.
    """
    samples = [point.samples for point in points if point.samples is not None]
    if len(samples) < len(points):
        return True
    return max(samples) - min(samples) <= SAME_WORK_TOLERANCE * min(samples)


def format_energy(joules: float) -> str:
    """Return an energy in the unit that fits it.

    >>> format_energy(7.2e6), format_energy(1800.0)
    ('2 kWh', '0.5 Wh')
    """
    unit = energy_unit(joules)
    return f"{format_number(joules / JOULES_PER_UNIT[unit])} {unit}"
