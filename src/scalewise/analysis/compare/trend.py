"""A history of results: one metric on each common number of devices, and where it changed."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from scalewise.analysis.compare.comparison import (
    FALSE_ALARM,
    comparable_units,
    matched_points,
)
from scalewise.analysis.compare.machine import MachineShift, is_same_machine, machine_shifts
from scalewise.analysis.compare.matching import one_side
from scalewise.analysis.compare.metric_difference import (
    CHANGING_DOUBTS,
    MANY,
    slowing_sign,
    with_shift,
)
from scalewise.analysis.compare.samples import MIN_NOISE, Change, Sample
from scalewise.analysis.compare.settings import setting_differences
from scalewise.analysis.compare.side import SPEED_METRICS, Side
from scalewise.analysis.measure import Doubt, Estimate, Point
from scalewise.analysis.measure.curve import same_work
from scalewise.analysis.measure.doubt import widening
from scalewise.analysis.measure.estimate import student_t_quantile
from scalewise.errors import NotEnoughData

MIN_RESULTS_FOR_DRIFT = 5
"""With fewer results, how they vary from day to day cannot be told from a step."""
MEDIAN_OF_NORMAL = 0.6745
"""The median of the absolute value of a normal variable of standard deviation 1."""


@dataclass(frozen=True, slots=True)
class TrendStep:
    """A change of level in a history."""

    index: int
    """The first result after the change."""
    ratio: Estimate
    """The level after / before, with its 90 % interval."""
    is_better: bool
    machine: MachineShift | None = None
    """The shift of the machine without which the change would be shown."""

    @property
    def size(self) -> float:
        return abs(math.log(self.ratio.value))


@dataclass(frozen=True, slots=True)
class TrendLine:
    """One number of devices over the history."""

    devices: int
    values: tuple[Estimate | None, ...]
    """One for each result; None where it was not measured."""
    steps: tuple[TrendStep, ...] = ()
    """The changes of level that are more than noise, in the order of the history."""
    machine_steps: tuple[TrendStep, ...] = ()
    """Further changes, which the start of the processes shares: they may be the machine's."""
    noise_known: bool = True


@dataclass(frozen=True, kw_only=True)
class Trend:
    """Results in the order of time, or as given where times are unknown."""

    sides: tuple[Side, ...]
    metric: str
    series: tuple[TrendLine, ...]
    by_time: bool
    """Whether results are ordered by the start of their runs."""
    lines: tuple[str, ...] = ()
    """The answer in sentences; set by ``api.trend``."""

    def __str__(self) -> str:
        return "\n".join(self.lines)

    @property
    def largest_step(self) -> tuple[TrendLine, TrendStep] | None:
        """The largest change, with its number of devices."""
        changes = [(line, step) for line in self.series for step in line.steps]
        return max(changes, key=lambda change: change[1].size, default=None)

    @property
    def verdict(self) -> Literal["changed", "no change", "cannot tell"]:
        """Whether a change is shown; unknown noise or the machine's speed may hide one."""
        if self.largest_step:
            return "changed"
        is_noise_known = any(line.noise_known for line in self.series)
        is_machine = any(line.machine_steps for line in self.series)
        return "no change" if is_noise_known and not is_machine else "cannot tell"

    @property
    def doubts(self) -> tuple[tuple[Side, Doubt], ...]:
        return tuple((side, doubt) for side in self.sides for doubt in side.doubts)


def trend_of_sources(
    sources: Sequence[Sequence[Side]],
    where: Mapping[str, Any] | None = None,
    *,
    at: Sequence[int] = (),
) -> Trend:
    """Return the history of the only curve of each source."""
    sides = [one_side(source, where) for source in sources]
    by_time = all(side.started is not None for side in sides)
    if by_time:
        sides.sort(key=lambda side: side.started or 0.0)
    common = [n for n in _device_counts(sides) if len(_points(sides, n)) > 1]
    if not (common := [devices for devices in common if not at or devices in at]):
        raise NotEnoughData(
            "no number of devices was measured in two of the results",
            hint="compare results of the same numbers of devices",
        )
    metric = _speed_metric(sides, common)
    counts = [devices for devices in common if len(_known(sides, metric, devices)) > 1]
    level = FALSE_ALARM / len(counts)
    lines = [_trend_line(sides, metric, devices, level) for devices in counts]
    return Trend(sides=tuple(sides), metric=metric, series=tuple(lines), by_time=by_time)


def _speed_metric(sides: Sequence[Side], counts: Sequence[int]) -> str:
    """Return throughput or time: what more results know on a common number of devices, of those
    that may be compared.
    """
    results: dict[str, int] = {}
    for metric in SPEED_METRICS:
        known = [points for n in counts if len(points := _known(sides, metric, n)) > 1]
        if known and _is_comparable(sides, metric, known):
            results[metric] = len({index for points in known for index in points})
    if not results:
        raise NotEnoughData(
            "the results have neither throughput nor time of the same work in common",
            hint="compare studies of the same work, or tables with the same columns",
        )
    return max(results, key=lambda metric: results[metric])


def _is_comparable(
    sides: Sequence[Side], metric: str, known: Sequence[Mapping[int, Point]]
) -> bool:
    """Say whether rates have the same unit, or times are of the same work."""
    if metric == "throughput":
        return comparable_units(sides[index] for points in known for index in points)
    groups = [[*points.values()] for points in known]
    return all(same_work(point, group[0]) for group in groups for point in group)


def _device_counts(sides: Sequence[Side]) -> list[int]:
    return sorted({point.devices for side in sides for point in side.curve.points})


def _points(sides: Sequence[Side], devices: int) -> dict[int, Point]:
    """Return the points of one number of devices, by the index of their result: of several, that
    on the number of nodes which most results have.
    """
    points = {
        index: choices
        for index, side in enumerate(sides)
        if (choices := [point for point in side.curve.points if point.devices == devices])
    }
    results = Counter(n for choices in points.values() for n in {point.nodes for point in choices})
    return {
        index: max(choices, key=lambda point: (results[point.nodes], -(point.nodes or 0)))
        for index, choices in points.items()
    }


def _known(sides: Sequence[Side], metric: str, devices: int) -> dict[int, Point]:
    """Return those points that have the metric."""
    return {
        index: point
        for index, point in _points(sides, devices).items()
        if sides[index].estimate(metric, point) and sides[index].sample(metric, point)
    }


def _trend_line(sides: Sequence[Side], metric: str, devices: int, level: float) -> TrendLine:
    points = _known(sides, metric, devices)
    values = tuple(
        side.estimate(metric, points[index]) if index in points else None
        for index, side in enumerate(sides)
    )
    samples = {
        index: sample
        for index, point in points.items()
        if (sample := sides[index].sample(metric, point))
    }
    means = [samples[index].mean for index in samples]
    load_error = max(_load_error(sides[index], devices) for index in samples)
    noise = _noise([*samples.values()], load_error)
    if noise is None:
        return TrendLine(devices, values, noise_known=False)
    indexes, level = list(samples), level / max(len(means) - 1, 1)
    starts = _segment_starts(means, noise, level)
    bounds = [*starts, len(means)]
    steps = []
    for first, split, end in zip(bounds, bounds[1:], bounds[2:]):
        change = _change(means[first:split], means[split:end], noise)
        is_better = (change.value > 0) == (metric == "throughput")
        shift = _machine_shift(sides[indexes[split - 1]], sides[indexes[split]], devices)
        change = with_shift(change, shift, slowing_sign(metric))
        machine = shift if change.p > level else None
        steps.append(TrendStep(indexes[split], change.estimate(math.exp), is_better, machine))
    shown, machine_steps = (
        tuple(step for step in steps if bool(step.machine) == is_machine)
        for is_machine in (False, True)
    )
    return TrendLine(devices, values, shown, machine_steps)


def _machine_shift(before: Side, after: Side, devices: int) -> MachineShift | None:
    """Return how the machine's speed changed between two neighbours on the same machine."""
    if not is_same_machine(setting_differences(before, after)):
        return None
    return machine_shifts(before, after, matched_points(before, after)).get(devices)


Noise = tuple[float, int]
"""The variance of a result, and its degrees of freedom."""


def _load_error(side: Side, devices: int) -> float:
    """Return the standard error of a result by load that changes from hour to hour."""
    changing = [doubt for doubt in side.doubts if doubt.kind in CHANGING_DOUBTS]
    return widening(changing, devices) / student_t_quantile(MANY)


def _noise(samples: Sequence[Sample], load_error: float) -> Noise | None:
    """Return the noise of a result; None if it is unknown. It is that of its repeats, and of load
    that they share; or what neighbours in the history differ by, if that is more: results vary from
    day to day by more than the repeats of one study.
    """
    freedom = sum(sample.freedom for sample in samples)
    noise: Noise | None = None
    if freedom:
        variance = sum((s.variance or 0.0) * s.freedom for s in samples) / freedom
        of_repeats = variance / float(np.mean([sample.count for sample in samples]))
        noise = of_repeats + load_error**2, freedom
    if len(samples) >= MIN_RESULTS_FOR_DRIFT:
        # The median is that of most neighbours: a few steps between them do not change it.
        gaps = np.abs(np.diff([sample.mean for sample in samples]))
        between = (float(np.median(gaps)) / MEDIAN_OF_NORMAL) ** 2 / 2
        if noise is None or between > noise[0]:
            noise = between, len(gaps) // 2  # A median is worth about half of its values.
    return noise and (max(noise[0], MIN_NOISE**2), noise[1])


def _change(before: Sequence[float], after: Sequence[float], noise: Noise) -> Change:
    """Return the difference of the levels of two segments."""
    error = math.sqrt(noise[0] * (1 / len(before) + 1 / len(after)))
    return Change(float(np.mean(after) - np.mean(before)), error, noise[1])


def _segment_starts(
    means: Sequence[float], noise: Noise, level: float, first: int = 0
) -> list[int]:
    """Return where segments of equal level start, by binary segmentation: a segment is split where
    its parts differ most, in standard errors, if that is more than noise.
    """
    splits = {k: _change(means[:k], means[k:], noise) for k in range(1, len(means))}
    best = max(splits, key=lambda k: abs(splits[k].value) / splits[k].error, default=None)
    if best is None or splits[best].p > level:
        return [first]
    return [
        *_segment_starts(means[:best], noise, level, first),
        *_segment_starts(means[best:], noise, level, first + best),
    ]
