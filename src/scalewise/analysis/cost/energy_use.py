"""How much energy a scale would take: by what was measured, or by watts that are given.

    E = once + watts · D,    D = devices × seconds

The same work computes as long in all, on however many devices: that part is taken
once. The rest is what devices draw while they wait, or before and after, and grows
with their time. So the mean power of a device falls where devices wait.
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
from scalewise.catalog.hardware import Device, drawing
from scalewise.errors import SpecError
from scalewise.validate import positive

STRONGEST = 1e6
"""No device draws more watts."""


@dataclass(frozen=True, slots=True)
class Power:
    """What energy follows from, and where that is from."""

    once: float
    """Joules of the work itself."""
    watts: float
    """Of each device, beside that."""
    spread: float
    """How far off it may be, as a logarithm: by the watts that were seen."""
    says: str
    bound: bool = False
    """Whether it is an upper bound."""

    def energy(self, spent: Estimate) -> Estimate:
        """Return the joules of device-seconds, in their interval and this one's together."""
        found = spent.through(lambda seconds: self.once + self.watts * seconds)
        return widened(found, self.spread)


def widened(found: Estimate, spread: float) -> Estimate:
    """Return an estimate whose interval also holds an error of ``spread``, in logarithms.

    >>> widened(Estimate(100.0, 100.0, 100.0), 0.0)
    Estimate(value=100.0, low=100.0, high=100.0, count=1)
    """
    return found / Estimate(1.0, math.exp(-spread), math.exp(spread), found.count)


def power_of(
    curve: ScalingCurve, given: float | None = None, device: str | None = None
) -> Power | None:
    """Return what the energy of this curve follows from; nothing where nobody knows.

    ``given`` are the watts of a device, ``device`` names one of the catalog.
    """
    seen = [point for point in curve.points if point.energy and point.time]
    if given is not None and device is not None:
        raise SpecError("watts and a device are two answers", hint="keep --watts or --device")
    if seen and (given is not None or device is not None):
        raise SpecError(
            f"the energy of {curve.name} was measured",
            hint="leave --watts and --device out: they are for curves without it",
        )
    if given is not None:
        positive("watts", given, example=700)
        if given > STRONGEST:
            raise SpecError(
                f"watts must be at most {STRONGEST:g}, got {given:g}", hint="--watts 700"
            )
        return Power(
            0.0, float(given), 0.0, f"Energy is {format_number(given)} W, as given, × device-hours."
        )
    if device is not None:
        return _at_most(drawing(device))
    return _measured(seen) if seen else None


def _at_most(device: Device) -> Power:
    assert device.power is not None  # Devices of which it is not known are refused.
    return Power(
        0.0,
        device.power,
        0.0,
        f"Energy is at most {format_number(device.power)} W × device-hours: what {device.name} may "
        "draw "
        f"({device.source}; {device.date}). Devices that wait draw less, so chances are at least "
        "these.",
        bound=True,
    )


def _measured(seen: Sequence[Point]) -> Power:
    """Return the law of the points that know their energy."""
    rows = [_row(point) for point in seen]
    drawn = [mean_device_watts(joules, seconds, 1) for joules, seconds in rows]
    if len(rows) == 1 or not _equal_work(seen):
        once, each = 0.0, drawn[-1]
    else:
        joules, spent = np.array(rows).T
        (once, each), _ = nnls(np.stack([1 / joules, spent / joules], axis=1), np.ones(len(rows)))
    spread = math.log(max(drawn) / min(drawn)) / 2
    work = f"{told(once)} + " if once else ""
    return Power(float(once), float(each), spread, (
        f"Energy follows E = {work}{format_number(each)} W × device-hours, from "
        f"{_seen(seen, drawn)}."
    ))  # fmt: skip


def _row(point: Point) -> tuple[float, float]:
    """Return joules and device-seconds of a point that has both."""
    assert point.energy is not None
    assert point.time is not None
    return point.energy.value, point.devices * point.time.value


def _equal_work(seen: Sequence[Point]) -> bool:
    samples = [point.samples for point in seen]
    if None in samples:
        return True  # As everywhere: times of a table are taken to be of equal work.
    known = [each for each in samples if each is not None]
    return max(known) - min(known) <= SAME_WORK_TOLERANCE * min(known)


def _seen(seen: Sequence[Point], drawn: Sequence[float]) -> str:
    ends = [f"{format_number(drawn[0])} W per device on {seen[0].devices:,}"]
    if len(seen) > 1:
        ends.append(f"{format_number(drawn[-1])} W on {seen[-1].devices:,}")
    scales = "1 measured scale" if len(seen) == 1 else f"{len(seen)} measured scales"
    return f"{scales} ({', '.join(ends)})"


def told(joules: float) -> str:
    """Return an energy in a unit that fits it.

    >>> told(7.2e6), told(1800.0)
    ('2 kWh', '0.5 Wh')
    """
    unit = energy_unit(joules)
    return f"{format_number(joules / JOULES_PER_UNIT[unit])} {unit}"
