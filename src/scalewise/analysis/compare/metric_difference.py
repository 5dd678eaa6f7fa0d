"""One metric on both sides: tested on every common number of devices, with what noise hides."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from scalewise.analysis.compare.machine import MachineShift
from scalewise.analysis.compare.samples import (
    MIN_NOISE,
    Change,
    Noise,
    Pair,
    change_of,
    detectable,
    holm,
    noise_of_pairs,
    repeats_needed,
)
from scalewise.analysis.compare.side import Side
from scalewise.analysis.measure import Estimate, Point
from scalewise.analysis.measure.doubt import widening
from scalewise.analysis.measure.estimate import student_t_quantile

FIRST_REPEATS = 3
"""Repeats to ask for where every number was measured once: they show the noise."""
RATE = "throughput"
HIGHER_IS_BETTER = (RATE, "accuracy")
RowVerdict = Literal["higher", "lower", "no difference", "cannot tell"]
TIMED = (RATE, "time", "energy")
"""Metrics that doubts about times and rates make less certain."""
CHANGING_DOUBTS = ("overloaded", "not steady")
"""Repeats that follow each other share what causes these doubts: their noise does not show it."""
MANY = 10**6
"""Degrees of freedom with which Student's t is a normal variable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricDifference:
    """One metric on one number of devices, on both sides."""

    metric: str
    devices: int
    before: Estimate
    after: Estimate
    ratio: Estimate
    """After / before, with its 90 % interval where the noise is known."""
    change: Change | None
    """The difference of the logarithms, for further tests; None if the noise is unknown."""
    verdict: RowVerdict
    would_see: float | None = None
    """The smallest relative difference that would be found nine times of ten."""
    repeats: tuple[int, int]
    shows_noise: tuple[bool, bool] = (True, True)
    """Whether repeats or intervals of the metric show its noise, on each side."""
    more_repeats: int | None = None
    """More repeats of each side that the wanted difference needs; None if they do not help."""
    machine: MachineShift | None = None
    """The shift of the machine without which a difference would be shown."""

    @property
    def is_different(self) -> bool:
        return self.verdict in ("higher", "lower")

    @property
    def is_better(self) -> bool | None:
        """Whether the second side is better; None where no difference is seen."""
        if not self.is_different:
            return None
        return (self.verdict == "higher") == (self.metric in HIGHER_IS_BETTER)


PointPair = tuple[Point, Point, Pair]


def metric_pairs(
    a: Side, b: Side, metric: str, points: Sequence[tuple[Point, Point]]
) -> list[PointPair]:
    """Return the repeats of a metric on both sides, for all points where both know it."""
    pairs = []
    for before, after in points:
        first, second = a.sample(metric, before), b.sample(metric, after)
        if first and second and a.estimate(metric, before) and b.estimate(metric, after):
            pairs.append((before, after, (first, second)))
    return pairs


@dataclass(frozen=True, slots=True)
class _Tested:
    """A change on one number of devices, and whether it is more than noise."""

    change: Change
    noise: Noise
    doubt_error: float
    is_shown: bool
    """Whether the change is shown beyond what it shares with a shift of the machine."""
    is_shown_with_shift: bool
    """Whether it would be shown if the machine's speed were taken as equal."""


def compare_metric(
    a: Side,
    b: Side,
    metric: str,
    pairs: Sequence[PointPair],
    wanted: float,
    level: float,
    shifts: Mapping[int, MachineShift],
) -> list[MetricDifference]:
    """Return the differences of one metric, tested together at ``level``. ``shifts`` of the
    machine's speed, by number of devices, may be what differs.
    """
    shows_noise = (
        any(first.freedom for _, _, (first, _) in pairs),
        any(second.freedom for _, _, (_, second) in pairs),
    )
    # Runs are alike on both sides; how a table's numbers were measured is unknown.
    is_known = (a.runs or shows_noise[0]) and (b.runs or shows_noise[1])
    tested = _test(a, b, metric, pairs, level, shifts) if is_known else []
    rows = []
    for index, (before, after, (first, second)) in enumerate(pairs):
        counts = (first.count, second.count)
        estimate, other_estimate = a.estimate(metric, before), b.estimate(metric, after)
        assert estimate is not None  # ``metric_pairs`` has only known values.
        assert other_estimate is not None
        row = MetricDifference(
            metric=metric,
            devices=before.devices,
            before=estimate,
            after=other_estimate,
            ratio=Estimate(math.exp(second.mean - first.mean)),
            change=None,
            verdict="cannot tell",
            repeats=counts,
            shows_noise=shows_noise,
            more_repeats=max(FIRST_REPEATS - min(counts), 1),
        )
        if tested:
            shift = shifts.get(before.devices)
            row = _judged(row, tested[index], wanted, level / len(pairs), shift)
        rows.append(row)
    return rows


def _test(
    a: Side,
    b: Side,
    metric: str,
    pairs: Sequence[PointPair],
    level: float,
    shifts: Mapping[int, MachineShift],
) -> list[_Tested]:
    """Return the tested change of each pair; empty if the noise is unknown."""
    samples = [pair for _, _, pair in pairs]
    noises = noise_of_pairs(
        samples, [_least_variance(metric, before, pair) for before, _, pair in pairs]
    )
    if noises is None:
        return []
    counts = [before.devices for before, _, _ in pairs]
    errors = [doubt_error(a, b, devices) if metric in TIMED else 0.0 for devices in counts]
    with_shifts = [change_of(*each) for each in zip(samples, noises, errors)]
    changes = with_shifts
    if metric in TIMED:
        changes = [
            with_shift(change, shifts.get(devices), slowing_sign(metric))
            for change, devices in zip(changes, counts)
        ]
    shown, shown_with_shifts = (
        holm([change.p for change in each], level) for each in (changes, with_shifts)
    )
    return [_Tested(*each) for each in zip(changes, noises, errors, shown, shown_with_shifts)]


def _judged(
    row: MetricDifference,
    tested: _Tested,
    wanted: float,
    level: float,
    shift: MachineShift | None,
) -> MetricDifference:
    """Return the row with its interval, its verdict, and what would be seen with more repeats."""
    change, noise, error = tested.change, tested.noise, tested.doubt_error
    seen = math.expm1(detectable(noise, row.repeats, level, error))
    more = repeats_needed(noise, row.repeats, level, math.log1p(wanted), error)
    verdict: RowVerdict = "cannot tell"
    machine: MachineShift | None = None
    if tested.is_shown:
        verdict = "higher" if change.value > 0 else "lower"
    elif tested.is_shown_with_shift and change.shared:
        machine, more = shift, None
    elif seen <= wanted:
        verdict = "no difference"
    return replace(
        row,
        ratio=change.estimate(math.exp, min(row.repeats)),
        change=change,
        verdict=verdict,
        would_see=seen,
        more_repeats=more,
        machine=machine,
    )


def slowing_sign(metric: str) -> int:
    """Return the sign of the change of a timed metric on a slower machine."""
    return -1 if metric == RATE else 1


def with_shift(change: Change, shift: MachineShift | None, sign: int) -> Change:
    """Return the change with the part that it shares with the machine's shift; ``sign`` is that of
    the change of a slower machine.
    """
    if shift is None or not (shared := shift.shared(sign * change.value)):
        return change
    return replace(change, shared=sign * shared, shared_error=shift.error)


def _least_variance(metric: str, point: Point, pair: Pair) -> float:
    """Return the smallest variance of a repeat's logarithm: for an accuracy, that of the chance by
    which validation samples were chosen.
    """
    least = MIN_NOISE**2
    if metric == "accuracy" and point.validation_samples:
        share = math.exp((pair[0].mean + pair[1].mean) / 2)
        least += max(1 - share, 0.0) / (share * point.validation_samples)
    return least


def doubt_error(a: Side, b: Side, devices: int) -> float:
    """Return the standard error of a ratio that doubts about one side add. What both sides share
    counts only if it changes from hour to hour: short runs, for example, are short on both.
    """
    errors = []
    for side, other in ((a, b), (b, a)):
        shared = {(doubt.kind, doubt.devices) for doubt in other.doubts}
        counted = [
            doubt
            for doubt in side.doubts
            if doubt.kind in CHANGING_DOUBTS or (doubt.kind, doubt.devices) not in shared
        ]
        if side.runs:  # The intervals of a table's rows already have it.
            errors.append(widening(counted, devices))
    return math.hypot(*errors, 0.0) / student_t_quantile(MANY)
