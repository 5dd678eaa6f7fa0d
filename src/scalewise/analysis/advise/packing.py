"""Many equal runs on some devices: all at once on few each, or one after another on all.

    time = wait + rounds × time of one run on k devices        rounds = ⌈runs / ⌊N / k⌋⌉

A run on fewer devices is more efficient, and waits for nobody; a round that is not full
leaves devices idle, which is why the answer is not always one device each.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scalewise.analysis.advise.advice_text import long, percent
from scalewise.analysis.advise.scale import Scale
from scalewise.analysis.measure import Estimate
from scalewise.analysis.number_format import format_count, format_number
from scalewise.errors import SpecError
from scalewise.validate import whole

MOST = 10**6
"""Runs beyond this are no sweep."""


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way to place the runs on all devices that there are."""

    devices: int
    each: int
    """Devices of one run."""
    at_once: int
    """Runs side by side."""
    rounds: int
    time: Estimate
    """Seconds until all are done."""
    device_hours: Estimate
    """Of all runs together; devices that idle beside them are not counted."""


@dataclass(frozen=True)
class Runs:
    """Equal runs, and every way to place them on each number of devices."""

    count: int
    ways: tuple[Way, ...]

    def on(self, devices: int) -> tuple[Way, ...]:
        """Return the ways on so many devices, from one device each on."""
        return tuple(way for way in self.ways if way.devices == devices)

    def best(self, devices: int) -> Way:
        """Return the fastest way; of equal ones, the one with fewer devices each."""
        return min(self.on(devices), key=lambda way: (way.time.value, way.each))

    @property
    def counts(self) -> tuple[int, ...]:
        """The numbers of devices that there are ways for."""
        return tuple(dict.fromkeys(way.devices for way in self.ways))

    def sentence(self, devices: int) -> str:
        """Say which way is the fastest on so many devices, and what the extremes would take."""
        best, (spread, *_) = self.best(devices), self.on(devices)
        after = self.on(devices)[-1]
        others = {
            "one after another on all": after,
            f"on {format_count(spread.each)} each": spread,
        }
        told = [
            f"{how} in {_time(way)} (+{percent(way.time.value / best.time.value - 1, 0)})"
            for how, way in others.items()
            if way != best
        ]
        more = f"; {' and '.join(told)}" if told else ""
        are = "is" if self.count == 1 else "are"
        return (
            f"{format_count(self.count, 'run')} on {format_count(devices)} {are} done soonest, in "
            "equal "
            f"shares, on {format_count(best.each)} each, {best.at_once:,} at a time, in "
            f"{_time(best)} "
            f"and {format_number(best.device_hours.value)} device-hours{more}."
        )


def many_runs(count: int, scales: Sequence[Scale]) -> Runs:
    """Return every way to place equal runs on each of these scales."""
    whole("runs", count, least=1)
    if count > MOST:
        raise SpecError(f"runs must be at most {MOST:,}, got {count:,}", hint="--runs 8")
    ways = []
    for all_of_them in scales:
        for scale in scales:
            if scale.devices <= all_of_them.devices:
                ways.append(_way(count, all_of_them, scale))
    return Runs(count, tuple(ways))


def _way(count: int, there: Scale, scale: Scale) -> Way:
    if scale.device_hours is None:
        raise SpecError(
            "runs are placed by their time, and there are only throughputs",
            hint="add a column time, or give --target",
        )
    at_once = min(count, there.devices // scale.devices)
    rounds = math.ceil(count / at_once)
    waited = there.wait or 0.0
    busy = scale.device_hours * (3600 / scale.charged)
    return Way(
        devices=there.devices,
        each=scale.devices,
        at_once=at_once,
        rounds=rounds,
        time=busy.through(lambda seconds: waited + rounds * seconds),
        device_hours=busy * (count * scale.devices / 3600),
    )


def _time(way: Way) -> str:
    seconds = f"{format_number(way.time.value)} s"
    told = long(way.time.value)
    return seconds if told.endswith(" s") else f"{seconds} ({told})"
