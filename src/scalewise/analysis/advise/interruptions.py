"""Interrupted jobs: how often to save checkpoints, and how much time interruptions cost.

A job stops when any of its devices is interrupted, which happens at random, every M seconds on
average. The job saves every τ seconds of training; a save takes δ seconds, a restart R seconds:

    M = time between interruptions of one device (or node) / number of devices (or nodes)
    first order (Young)   τ = √(2 δ M)
    corrected (Daly)      τ = √(2 δ M) (1 + √(δ / 2M) / 3 + (δ / 2M) / 9) − δ      for δ < 2M
    expected time (Daly)  M exp(R / M) (exp((τ + δ) / M) − 1) × work / τ
    without saves         M exp(R / M) (exp(work / M) − 1), which is shorter for a short job
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from scalewise.analysis.advise.durations import parse_limited_duration
from scalewise.analysis.advise.scale import Interrupted, Scale
from scalewise.analysis.measure.window import save_seconds
from scalewise.errors import SpecError, parameter, shown
from scalewise.record.read import RunRecord

EXAMPLE = "write 12h (of each device) or '12h per node'"
MAX_SLOWDOWN = 100.0
"""A job that interruptions slow down by a larger factor is reported as never finishing."""


@dataclass(frozen=True, slots=True)
class InterruptionInterval:
    """The mean time between two interruptions of one device, or of one node."""

    seconds: float
    per: str
    """``device`` or ``node``."""
    text: str
    """As the user wrote it."""

    @classmethod
    def parse(cls, argument: str) -> "InterruptionInterval":
        """Parse ``12h`` (of a device) or ``12h per node``.

        >>> InterruptionInterval.parse("12h per node")
        InterruptionInterval(seconds=43200.0, per='node', text='12h per node')
        """
        text = argument if isinstance(argument, str) else ""
        duration, _, per = (part.strip() for part in text.partition(" per "))
        if per not in ("", "device", "node"):
            problem = f"interruptions are per device or per node, got {shown(argument)}"
            raise SpecError(problem, hint=EXAMPLE)
        seconds = parse_limited_duration(argument, EXAMPLE, text=duration)
        return cls(seconds, per or "device", text.strip())

    def mean_for_job(self, scale: Scale) -> float:
        """Return the mean seconds between two interruptions of a job on this scale."""
        count = scale.devices if self.per == "device" else scale.nodes
        if count is None:
            raise SpecError(
                f"{self.text} needs the number of nodes: the devices per node are not known",
                hint=f"give {parameter('devices_per_node', 4)}, or the interruptions per device",
            )
        return self.seconds / count


@dataclass(frozen=True, kw_only=True)
class Interruptions:
    """How often jobs are interrupted, and how long their saves and restarts take."""

    every: InterruptionInterval
    save: float
    """Seconds of one save."""
    restarts: Mapping[int, float]
    """Seconds until an interrupted job trains again, by number of devices."""
    save_measured: bool = False
    restart_measured: bool = False

    def applied(self, scale: Scale) -> Scale | None:
        """Return the scale with its expected time; None if the job would never finish."""
        time = scale.require_time("interruptions lengthen a time")
        mean, restart = self.every.mean_for_job(scale), self.restarts[scale.devices]
        interval = daly_interval(self.save, mean)

        def expected_seconds(work: float, every: float) -> float:
            return expected_time(work, mean=mean, save=self.save, restart=restart, every=every)

        def best_time(work: float) -> float:
            """Return the expected seconds with saves or, if shorter, without (every inf)."""
            return min(expected_seconds(work, interval), expected_seconds(work, math.inf))

        # Judge by the upper end of the interval, so that the expected interval stays finite.
        if best_time(time.high or time.value) > MAX_SLOWDOWN * time.value:
            return None
        expected = time.through(best_time)
        without_saves = expected_seconds(time.value, math.inf)
        saves_pay = expected_seconds(time.value, interval) < without_saves
        interrupted = Interrupted(
            mean=mean,
            interval=interval if saves_pay else None,
            count=expected.value / mean,
            lost=time.through(lambda work: best_time(work) - work),
        )
        return replace(scale, time=expected, interrupted=interrupted)


def young_interval(save: float, mean: float) -> float:
    """Return the seconds of training between two saves, by Young, to first order.

    >>> young_interval(30.0, 2700.0)
    402.49223594996215
    """
    return math.sqrt(2 * save * mean)


def daly_interval(save: float, mean: float) -> float:
    """Return the seconds of training between two saves, by Daly, to higher order.

    >>> round(daly_interval(30.0, 2700.0), 1)
    382.7
    """
    if save >= 2 * mean:  # Daly's choice where his formula does not hold.
        return mean
    ratio = save / (2 * mean)
    return young_interval(save, mean) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save


def expected_time(work: float, *, mean: float, save: float, restart: float, every: float) -> float:
    """Return the expected seconds for ``work`` seconds of training that is saved ``every`` seconds.

    >>> round(expected_time(36000, mean=2700, save=30, restart=180, every=383))
    44838
    """
    has_saves = every < work
    segment = every + save if has_saves else work
    try:
        segment_time = mean * math.exp(restart / mean) * math.expm1(segment / mean)
    except OverflowError:
        return math.inf
    return segment_time * (work / every if has_saves else 1.0)


def recorded_save(records: Sequence[RunRecord]) -> float | None:
    """Return the mean seconds of a save in runs on the most devices; None if no save was timed."""
    largest_world = max((record.spec.topology.world for record in records), default=0)
    seconds: list[float] = []
    for record in records:
        if record.spec.topology.world == largest_world:
            seconds += save_seconds(record)
    return (sum(seconds) / len(seconds) if seconds else 0.0) or None  # A mean of 0 is no timing.
