"""What an advice says, in sentences that cite their numbers."""

from collections.abc import Callable, Sequence

from scalewise.analysis.advise.purpose import Goal, Limit, Purpose
from scalewise.analysis.advise.scale import Scale
from scalewise.analysis.measure import Estimate
from scalewise.analysis.measure.energy import JOULES_PER_UNIT, energy_unit
from scalewise.analysis.number_format import format_estimate, format_number

BEST: dict[Goal, tuple[str, str]] = {
    "device-hours": ("take", "the fewest device-hours"),
    "time": ("are", "the fastest"),
    "balanced": ("have", "the least device-hours × time (device-hours stand for energy)"),
}
BY_ENERGY = "the least energy × time"
"""What balanced means where energy is known at every scale."""
LONG = 7200.0
"""Seconds from which a time is also told in hours or days."""
ONE = {"take": "takes", "are": "is", "have": "has"}


def reason(chosen: Scale, purpose: Purpose, scales: Sequence[Scale]) -> str:
    """Say why this scale: what it is best in, among which, and its numbers."""
    verb, best = BEST[purpose.goal]
    if purpose.goal == "balanced" and all(scale.energy for scale in scales):
        best = BY_ENERGY
    verb = ONE[verb] if chosen.devices == 1 else verb
    among = f"of those that meet {listed(purpose.limits)}" if purpose.limits else (
        f"of {_span(scales)}"
    )  # fmt: skip
    return f"{chosen}, {_how(chosen)}, {verb} {best} {among}: {_ranges(chosen)}{odds(chosen)}."


def missed(closest: Scale, purpose: Purpose, scales: Sequence[Scale]) -> str:
    """Say that no scale serves, and which comes closest."""
    return (
        f"No scale of {_span(scales)} meets {listed(purpose.limits)}; the closest is {closest}, "
        f"{_how(closest)}: {_ranges(closest)}{odds(closest)}."
    )


def instead(way: str, other: Scale, chosen: Scale) -> str:
    """Say what the next smaller or larger choice would take, against the chosen one."""
    time = _change(other.slowness / chosen.slowness, "time")
    spent = _change(other.spent / chosen.spent, "device-hours")
    return f"{way}: {other}, {_how(other)}: {_numbers(other)}; {time}, {spent}{odds(other)}."


def listed(limits: Sequence[Limit]) -> str:
    """Return limits as a person would list them."""
    return " and ".join(map(str, limits))


def _ranges(scale: Scale) -> str:
    return _told(scale, format_estimate)


def _numbers(scale: Scale) -> str:
    return _told(scale, lambda estimate: format_number(estimate.value))


def _told(scale: Scale, say: Callable[[Estimate], str]) -> str:
    """Return what a scale takes; a throughput only where there is no time."""
    parts = [
        f"{say(scale.time)} s{_until(scale)}" if scale.time else "",
        f"{say(scale.device_hours)} device-hours" if scale.device_hours else "",
        f"a cost of {say(scale.cost)} {scale.currency or ''}".rstrip() if scale.cost else "",
        f"{_energy(scale.energy, say)}" if scale.energy else "",
        f"{say(scale.throughput)} per second" if scale.throughput and not scale.time else "",
        f"efficiency {percent(scale.efficiency.value)}{_factors(scale)}"
        if scale.efficiency
        else "",
    ]
    return ", ".join(part for part in parts if part)


def _energy(joules: Estimate, say: Callable[[Estimate], str]) -> str:
    unit = energy_unit(joules.value)
    return f"{say(joules * (1 / JOULES_PER_UNIT[unit]))} {unit}"


def _until(scale: Scale) -> str:
    """Return what the time is until, a long one in hours too, and what of it is no training."""
    assert scale.time is not None
    seconds = scale.time.value
    lost = scale.interrupted.lost.value if scale.interrupted else 0.0
    aside = [
        long(seconds) if seconds >= LONG else "",
        f"{format_number(scale.wait)} s of it in the queue" if scale.wait else "",
        f"{format_number(lost)} s for interruptions" if lost else "",
    ]
    more = ", ".join(part for part in aside if part)
    return (" to target" if scale.target else "") + (f" ({more})" if more else "")


def _factors(scale: Scale) -> str:
    if scale.target is None:
        return ""
    parts = scale.target.hardware.value, scale.target.statistical.value
    return f" (devices {percent(parts[0])} × batch {percent(parts[1])})"


def long(seconds: float) -> str:
    """Return a time in the unit that people would use.

    >>> long(90.0), long(5400.0), long(36000.0), long(10.0**6)
    ('90 s', '90 min', '10 h', '11.6 d')
    """
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def percent(share: float, digits: int = 1) -> str:
    """Return a share in percent."""
    return f"{100 * share:.{digits}f} %"


def _how(scale: Scale) -> str:
    return "measured" if scale.measured else "predicted"


def odds(scale: Scale) -> str:
    """Say how likely a scale keeps its limits, where that is known."""
    if scale.chance is None:
        return ""
    least, most = 0.01, 0.99
    told = percent(min(max(scale.chance, least), most), 0)
    edge = "below " if scale.chance < least else "above " if scale.chance > most else ""
    return f"; the chance to meet it is {edge}{told}"


def _change(ratio: float, what: str) -> str:
    sign = "+" if ratio >= 1 else "−"
    return f"{sign}{percent(abs(ratio - 1), 0)} {what}"


def _span(scales: Sequence[Scale]) -> str:
    return f"{scales[0].devices:,} to {scales[-1].devices:,} devices"
