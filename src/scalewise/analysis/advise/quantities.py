"""The quantities that scales are judged by: how each is read from a scale, and written."""

from collections.abc import Callable
from dataclasses import dataclass

from scalewise.analysis.advise.scale import Scale
from scalewise.analysis.measure import Estimate
from scalewise.analysis.measure.energy import JOULES_PER_UNIT, energy_unit
from scalewise.analysis.number_format import format_number

LONG_SECONDS = 7200.0
"""A longer time is also written in hours or days."""
EstimateFormat = Callable[[Estimate], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """One row of the table of quantities."""

    name: str
    unit: str
    read: Callable[[Scale], Estimate | None]
    """The value of a scale; None where it is unknown."""
    write: Callable[[Scale, Estimate, EstimateFormat], str]
    """The value of a scale as part of a sentence."""
    requires: str
    """What a curve must have for it at every scale."""
    higher_is_better: bool = False
    missing: tuple[str, str] | None = None
    """Problem and hint if it is unknown at a scale although its time is known."""

    def describe(self, scale: Scale, estimate: EstimateFormat) -> str:
        """Return the value as part of a sentence; empty where unknown or not worth stating."""
        value = self.read(scale)
        if value is None or (self is THROUGHPUT and scale.time):  # The time says the same.
            return ""
        return self.write(scale, value, estimate)


def format_percent(share: float, digits: int = 1) -> str:
    """Return a share in percent."""
    return f"{100 * share:.{digits}f} %"


def format_duration(seconds: float) -> str:
    """Return a duration in its usual unit.

    >>> format_duration(90.0), format_duration(5400.0), format_duration(36000.0)
    ('90 s', '90 min', '10 h')
    """
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def _write_time(scale: Scale, time: Estimate, estimate: EstimateFormat) -> str:
    """Return the time, a long one in hours too, and the parts of it that are no training."""
    lost = scale.interrupted.lost.value if scale.interrupted else 0.0
    details = [
        format_duration(time.value) if time.value >= LONG_SECONDS else "",
        f"{format_number(scale.wait)} s of it in the queue" if scale.wait else "",
        f"{format_number(lost)} s for interruptions" if lost else "",
    ]
    in_brackets = ", ".join(filter(None, details))
    to_target = " to target" if scale.target else ""
    return f"{estimate(time)} s{to_target}" + (f" ({in_brackets})" if in_brackets else "")


def _write_energy(_: Scale, joules: Estimate, estimate: EstimateFormat) -> str:
    unit = energy_unit(joules.value)
    return f"{estimate(joules * (1 / JOULES_PER_UNIT[unit]))} {unit}"


def _write_efficiency(scale: Scale, efficiency: Estimate, _: EstimateFormat) -> str:
    """Return the efficiency, and its two factors where there is a target."""
    percent = format_percent(efficiency.value)
    if scale.target is None:
        return f"efficiency {percent}"
    hardware, statistical = scale.target.hardware.value, scale.target.statistical.value
    return (
        f"efficiency {percent} (devices {format_percent(hardware)} × "
        f"batch {format_percent(statistical)})"
    )


TIME = Quantity(
    name="time",
    unit="s",
    read=lambda scale: scale.time,
    write=_write_time,
    requires="time of equal work",
)
DEVICE_HOURS = Quantity(
    name="device-hours",
    unit="h",
    read=lambda scale: scale.device_hours,
    write=lambda _, hours, estimate: f"{estimate(hours)} device-hours",
    requires="time of equal work",
)
COST = Quantity(
    name="cost",
    unit="currency of the price",
    read=lambda scale: scale.cost,
    write=lambda scale, cost, estimate: (
        f"a cost of {estimate(cost)} {scale.currency or ''}".rstrip()
    ),
    requires="time of equal work",
)
ENERGY = Quantity(
    name="energy",
    unit="J",
    read=lambda scale: scale.energy,
    write=_write_energy,
    requires="time of equal work",
    missing=(
        "no energy was measured",
        "advise takes --watts 700, or --device h100 for its maximum power",
    ),
)
THROUGHPUT = Quantity(
    name="throughput",
    unit="samples/s",
    read=lambda scale: scale.throughput,
    write=lambda _, rate, estimate: f"{estimate(rate)} per second",
    requires="throughput",
    higher_is_better=True,
)
EFFICIENCY = Quantity(
    name="efficiency",
    unit="share",
    read=lambda scale: scale.efficiency,
    write=_write_efficiency,
    requires="throughput",
    higher_is_better=True,
)
QUANTITIES = (TIME, DEVICE_HOURS, COST, ENERGY, THROUGHPUT, EFFICIENCY)
"""In the order of a sentence."""
