"""Devices that are taken away now and then: how often to save, and what is lost all the same.

A job that holds many devices loses any of them as often as all of them together:

    M = time between interruptions of one device (or node) / devices (or nodes)

It saves every τ seconds, each time for δ, and needs R to be back after an interruption:

    first order (Young)   τ = √(2 δ M)
    corrected (Daly)      τ = √(2 δ M) (1 + √(δ / 2M) / 3 + (δ / 2M) / 9) − δ      for δ < 2M

    expected time (Daly)  M exp(R / M) (exp((τ + δ) / M) − 1) × work / τ

for interruptions that come at random, at any moment, saves and restarts included. A job
that is short does better without saves: M exp(R / M) (exp(work / M) − 1).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from scalewise.analysis.advise.advice_text import long
from scalewise.analysis.advise.durations import span
from scalewise.analysis.advise.scale import Interrupted, Scale
from scalewise.analysis.number_format import format_count, format_number
from scalewise.errors import SpecError
from scalewise.record.read import RunRecord

EXAMPLE = "--interrupted-every 12h, or '12h per node'"
HOPELESS = 100.0
"""A job that takes this many times as long as without interruptions is not worth waiting for."""


@dataclass(frozen=True, slots=True)
class Often:
    """The mean time between two interruptions of one device, or of one node."""

    seconds: float
    per: str
    text: str

    @classmethod
    def parse(cls, given: str) -> "Often":
        """Read ``12h`` (of a device) or ``12h per node``.

        >>> Often.parse("12h per node")
        Often(seconds=43200.0, per='node', text='12h per node')
        """
        text = given if isinstance(given, str) else ""
        first, _, per = (word.strip() for word in text.partition(" per "))
        if per not in ("", "device", "node"):
            raise SpecError(
                f"interruptions are per device or per node, got {given!r}", hint=EXAMPLE
            )
        return cls(span(given, EXAMPLE, part=first), per or "device", text.strip())

    def mean(self, scale: Scale) -> float:
        """Return the mean time between two interruptions of a job on this scale."""
        if self.per == "device":
            return self.seconds / scale.devices
        if scale.nodes is None:
            raise SpecError(
                f"{self.text} cannot be told: the devices per node are not known",
                hint="--devices-per-node 4, or give it per device",
            )
        return self.seconds / scale.nodes


@dataclass(frozen=True, kw_only=True)
class Interruptions:
    """Turns the undisturbed time of a scale into the one to be expected."""

    often: Often
    save: float
    """Seconds."""
    restarts: Mapping[int, float]
    """Seconds until a job that was interrupted trains again, by devices."""
    source: str = ""
    """Where these are from, if they were not given."""

    def applied(self, scale: Scale) -> Scale | None:
        """Return the scale with the time to be expected; nothing where it would never end."""
        if scale.time is None:
            raise SpecError(
                "interruptions lengthen a time, and there are only throughputs",
                hint="add a column time, or give --target",
            )
        mean, restart = self.often.mean(scale), self.restarts[scale.devices]
        between = interval(self.save, mean)

        def saving(seconds: float, every: float) -> float:
            return expected(seconds, mean=mean, save=self.save, restart=restart, between=every)

        def lengthened(seconds: float) -> float:
            return min(saving(seconds, between), saving(seconds, math.inf))

        undisturbed = scale.time.value
        if lengthened(scale.time.high or undisturbed) > HOPELESS * undisturbed:
            return None
        time = scale.time.through(lengthened)
        return replace(
            scale,
            time=time,
            interrupted=Interrupted(
                mean=mean,
                interval=between
                if saving(undisturbed, between) < saving(undisturbed, math.inf)
                else None,
                count=time.value / mean,
                lost=scale.time.through(lambda seconds: lengthened(seconds) - seconds),
            ),
        )

    def sentences(self, scale: Scale) -> tuple[str, ...]:
        """Say how often to save, by the formula, and what is lost all the same."""
        found = scale.interrupted
        if found is None or scale.time is None:
            return ()
        save, mean, restart = self.save, found.mean, self.restarts[scale.devices]
        told = (
            f"With an interruption of each {self.often.per} every {long(self.often.seconds)}, "
            f"a job on {format_count(scale.devices)} has one every {format_number(mean)} s; a save "
            "takes "
            f"{format_number(save)} s and a restart {format_number(restart)} s{self.source}"
        )
        optimum = format_number(young_interval(save, mean))
        young = f"√(2 × {format_number(save)} × {format_number(mean)}) = {optimum} s"
        how = (
            f"save every {format_number(found.interval)} s, by Daly's correction of Young's {young}"
            if found.interval
            else f"the job is too short for a save to pay; a long one would save every {young}"
        )
        hour = found.lost.value / scale.held * 3600
        return (
            f"{told}: {how}.",
            f"To be expected are {format_number(found.count)} interruptions, and "
            f"{format_number(found.lost.value)} s of saves, lost work and restarts: "
            f"{format_number(hour)} s of every hour.",
        )


def young_interval(save: float, mean: float) -> float:
    """Return the seconds between two saves, to first order.

    >>> young_interval(30.0, 2700.0)
    402.49223594996215
    """
    return math.sqrt(2 * save * mean)


def interval(save: float, mean: float) -> float:
    """Return the seconds of training between two saves, by Daly.

    >>> round(interval(30.0, 2700.0), 1)
    382.7
    """
    if save >= 2 * mean:
        return mean
    half = save / (2 * mean)
    return young_interval(save, mean) * (1 + math.sqrt(half) / 3 + half / 9) - save


def expected(work: float, *, mean: float, save: float, restart: float, between: float) -> float:
    """Return the seconds until so much training is done, interruptions and all.

    >>> round(expected(36000, mean=2700, save=30, restart=180, between=383))
    44838
    """
    saved = between < work
    stretch = between + save if saved else work
    try:
        once = mean * math.exp(restart / mean) * math.expm1(stretch / mean)
    except OverflowError:
        return math.inf
    return once * (work / between if saved else 1.0)


def recorded_save(records: Sequence[RunRecord]) -> float | None:
    """Return the seconds that one save took in the runs on most devices, or nothing."""
    largest = max((record.spec.topology.world for record in records), default=0)
    spans = []
    for record in records:
        if record.spec.topology.world == largest:
            by_rank = [
                [span for span in rank.spans if span.checkpoint_step is not None]
                for rank in record.ranks
            ]
            spans += [max(each.end - each.start for each in once) for once in zip(*by_rank)]
    found = sum(spans) / len(spans) if spans else 0.0
    return found or None
