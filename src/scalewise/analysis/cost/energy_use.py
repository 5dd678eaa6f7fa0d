"""The energy that a scale takes: from measured points, or from the watts of a device.

    E = once + watts · D,    D = devices × seconds

``once`` is the computation of equal work, on any number of devices. ``watts`` is what a device
draws on top, also while it waits: its mean power falls where devices wait.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from scalewise.analysis.measure import Estimate, Point, ScalingCurve
from scalewise.analysis.measure.curve import SAME_WORK_TOLERANCE
from scalewise.catalog.hardware import Device, device_for_power
from scalewise.errors import SpecError, parameter
from scalewise.validate import check_positive

MAX_WATTS = 1e6
"""A device that draws more is refused as a typing error."""


@dataclass(frozen=True, slots=True)
class Power:
    """The law of a curve's energy, and its source: the user, the catalog or measurements."""

    once: float
    """Joules of the work itself."""
    watts: float
    """Of each device, on top of that."""
    spread: float = 0.0
    """The error in logarithms: half the range of the measured watts."""
    device: Device | None = None
    """The catalog's device whose maximum power it is: an upper bound."""
    measured: tuple[tuple[int, float], ...] = ()
    """Numbers of devices, and the mean watts of a device that were measured there."""

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
    """Return the energy law of a curve; None where its power is unknown. Without measured energy it
    needs ``device_watts``, or ``device``, a name of the catalog.
    """
    measured = [point for point in curve.points if point.energy and point.time]
    if device_watts is not None and device is not None:
        raise SpecError(
            f"{parameter('watts')} and {parameter('device')} exclude each other",
            hint="keep one of them",
        )
    if measured and (device_watts is not None or device is not None):
        raise SpecError(
            f"the energy of {curve.name} was measured",
            hint=f"leave {parameter('watts')} and {parameter('device')} out: they are for curves "
            "without it",
        )
    if device_watts is not None:
        check_positive("watts", device_watts, example=700, maximum=MAX_WATTS)
        return Power(0.0, float(device_watts))
    if device is not None:
        listed = device_for_power(device)
        assert listed.power is not None  # device_for_power() refuses devices of unknown power.
        return Power(0.0, listed.power, device=listed)
    return _fit_power(measured) if measured else None


def _fit_power(measured: Sequence[Point]) -> Power:
    """Fit the law to points with energy and time, by least relative error."""
    rows = [
        (point.energy.value, point.devices * point.time.value)
        for point in measured
        if point.energy and point.time
    ]
    mean_watts = [joules / seconds for joules, seconds in rows]
    # Unknown samples count as equal work, as in every table of times.
    samples = [point.samples for point in measured if point.samples is not None]
    equal_work = len(samples) < len(measured) or max(samples) - min(
        samples
    ) <= SAME_WORK_TOLERANCE * min(samples)
    if len(rows) == 1 or not equal_work:
        once, device_watts = 0.0, mean_watts[-1]
    else:
        joules, seconds = np.array(rows).T
        relative = np.stack([1 / joules, seconds / joules], axis=1)
        (once, device_watts), _ = nnls(relative, np.ones(len(rows)))
    return Power(
        float(once),
        float(device_watts),
        math.log(max(mean_watts) / min(mean_watts)) / 2,
        measured=tuple((point.devices, watts) for point, watts in zip(measured, mean_watts)),
    )
