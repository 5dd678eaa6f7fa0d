"""The energy of a job on any number of devices: from measured points, or from a device's watts.

    E = once + watts · D,    D = devices × seconds

``once`` is the energy of the computation itself, equal for equal work on any number of devices.
``watts`` is what each device draws in addition, also while it waits.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scalewise.analysis.measure import Estimate, Point, ScalingCurve
from scalewise.analysis.measure.curve import SAME_WORK_TOLERANCE
from scalewise.catalog.hardware import Device, device_for_power
from scalewise.errors import SpecError, parameter
from scalewise.validate import check_positive

MAX_WATTS = 1e6
"""A device that draws more is refused as a typing error."""


@dataclass(frozen=True, slots=True)
class Power:
    """The power model of a curve. Its watts are from the user, from the catalog, or measured."""

    once: float
    """Joules of the computation itself."""
    watts: float
    """Watts that each device draws in addition."""
    spread: float = 0.0
    """Error of the model: half the logarithm of the highest measured watts / the lowest."""
    device: Device | None = None
    """The device in the catalog whose maximum power is ``watts``: energies are upper bounds."""
    measured: tuple[tuple[int, float], ...] = ()
    """Measured numbers of devices, and the mean watts per device on each."""

    def energy(self, device_seconds: Estimate) -> Estimate:
        """Return joules; the interval combines the error of the time and that of the model."""
        joules = device_seconds.through(lambda seconds: self.once + self.watts * seconds)
        return widened(joules, self.spread)


def widened(estimate: Estimate, spread: float) -> Estimate:
    """Return an estimate whose interval also covers an error by the factor exp(± ``spread``)."""
    # Dividing by 1, known with this error, combines the two errors as independent ones.
    return estimate / Estimate(1.0, math.exp(-spread), math.exp(spread), estimate.count)


def power_of(
    curve: ScalingCurve, device_watts: float | None = None, device: str | None = None
) -> Power | None:
    """Return the power model of a curve; None where unknown. If no energy was measured, the user
    gives ``device_watts``, or ``device``, a name in the catalog.
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
            hint=f"omit {parameter('watts')} and {parameter('device')}: they are for curves "
            "without measured energy",
        )
    if device_watts is not None:
        check_positive("watts", device_watts, example=700, maximum=MAX_WATTS)
        return Power(0.0, float(device_watts))
    if device is not None:
        catalog_device = device_for_power(device)
        assert catalog_device.power is not None  # device_for_power() refuses others.
        return Power(0.0, catalog_device.power, device=catalog_device)
    return _fit_power(measured) if measured else None


def _fit_power(measured: Sequence[Point]) -> Power:
    """Fit the model to points with energy and time, by least squares of relative errors."""
    rows = [
        (point.energy.value, point.devices * point.time.value)
        for point in measured
        if point.energy and point.time
    ]
    mean_watts = [joules / device_seconds for joules, device_seconds in rows]
    # Points with unknown samples count as equal work, as in every table of times.
    samples = [point.samples for point in measured if point.samples is not None]
    any_unknown = len(samples) < len(measured)
    equal_work = any_unknown or max(samples) - min(samples) <= SAME_WORK_TOLERANCE * min(samples)
    if len(rows) == 1 or not equal_work:  # ``once`` cannot be fitted: use the last point's watts.
        once, device_watts = 0.0, mean_watts[-1]
    else:
        joules, device_seconds = np.array(rows).T
        from scipy.optimize import nnls  # noqa: PLC0415 - slow to import; few curves have energies

        relative_terms = np.stack([1 / joules, device_seconds / joules], axis=1)
        (once, device_watts), _ = nnls(relative_terms, np.ones(len(rows)))
    return Power(
        float(once),
        float(device_watts),
        math.log(max(mean_watts) / min(mean_watts)) / 2,
        measured=tuple((point.devices, watts) for point, watts in zip(measured, mean_watts)),
    )
