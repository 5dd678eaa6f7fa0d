"""Compare two sides, such as two studies: which differences are larger than noise, and why."""

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

from scalewise.analysis.compare.causes import (
    CauseChange,
    RunsOfPoint,
    hidden_cause,
    job_changes,
    moved_cause,
    step_changes,
)
from scalewise.analysis.compare.machine import MachineShift, is_same_machine, machine_shifts
from scalewise.analysis.compare.matching import match_sides, split_source
from scalewise.analysis.compare.metric_difference import (
    MetricDifference,
    compare_metric,
    doubt_error,
    metric_pairs,
    slowing_sign,
)
from scalewise.analysis.compare.settings import SettingDifference, setting_differences
from scalewise.analysis.compare.side import METRICS, SPEED_METRICS, Side
from scalewise.analysis.measure import Doubt, Point
from scalewise.analysis.measure.curve import RELATIVE_UNIT, same_work
from scalewise.errors import NotEnoughData, SpecError, parameter, shown

FALSE_ALARM = 0.01
"""The chance that any difference is reported where there is none. Below 5 %, because people look
again after more repeats."""
SPEED_SHARE = 0.75
"""The part of FALSE_ALARM for the metric that decides the verdict; the others share the rest."""
DEFAULT_DIFFERENCE = 0.03
"""The relative difference that a comparison should find."""
Verdict = Literal["faster", "slower", "mixed", "no difference", "cannot tell"]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The second side compared with the first."""

    a: Side
    b: Side
    wanted: float
    """The relative difference that should be found."""
    rows: tuple[MetricDifference, ...]
    """By metric, then by devices."""
    settings: tuple[SettingDifference, ...] = ()
    causes: tuple[CauseChange, ...] = ()
    """How causes changed on ``cause_devices``: in a step, then in the job; largest change first."""
    cause_devices: int | None = None
    """The number of devices of ``headline``, or the largest if speed does not differ."""
    moved: CauseChange | None = None
    """The cause that explains most of the difference in speed. If no difference is shown: a cause
    in a step that changed by more than noise all the same."""
    machine: tuple[MachineShift, ...] = ()
    """How much longer or shorter the processes took to start, for each number of devices on which
    that is more than noise."""
    same_machine: bool = True
    """Whether both sides ran on the same hosts, with the same software."""
    not_compared: tuple[tuple[str, str], ...] = ()
    """(metric, reason: ``unit``, ``work``, ``unknown work``) for metrics that both sides have."""
    lines: tuple[str, ...] = ()
    """The answer in sentences; set by ``api.compare``."""

    def __str__(self) -> str:
        return "\n".join(self.lines)

    @property
    def speed_metric(self) -> str:
        """The metric that decides the verdict: throughput, or time where that is unknown."""
        return _speed_metric([row.metric for row in self.rows])

    @property
    def speed_rows(self) -> list[MetricDifference]:
        return [row for row in self.rows if row.metric == self.speed_metric]

    @property
    def verdict(self) -> Verdict:
        """By throughput and complete time, where they differ; else by the speed metric alone."""
        better = {row.is_better for row in self.rows if row.metric in SPEED_METRICS}
        better.discard(None)
        if better:
            return "mixed" if len(better) > 1 else "faster" if True in better else "slower"
        unsure = any(row.verdict == "cannot tell" for row in self.speed_rows)
        return "cannot tell" if unsure else "no difference"

    @property
    def headline(self) -> MetricDifference:
        """The row to show first: the largest number of devices with a difference in speed."""
        time_rows = [row for row in self.rows if row.metric == "time"]
        for rows in (self.speed_rows, time_rows):
            if different := [row for row in rows if row.is_different]:
                return different[-1]
        return max(self.speed_rows, key=lambda row: row.would_see or math.inf)

    @property
    def machine_row(self) -> MetricDifference | None:
        """The row of throughput or time, of the speed metric first, whose difference may be the
        machine's.
        """
        rows = [row for row in self.rows if row.machine and row.metric in SPEED_METRICS]
        return next(iter([row for row in rows if row.metric == self.speed_metric] or rows), None)

    @property
    def shared_shift(self) -> MachineShift | None:
        """The shift on other machines or with other software, if it is most of the headline's
        difference: then no single part of a step is its cause.
        """
        head = self.headline
        shift = next((shift for shift in self.machine if shift.devices == head.devices), None)
        if self.same_machine or not shift or not head.is_different or not head.change:
            return None
        slowing = head.change.value * slowing_sign(head.metric)
        return shift if abs(shift.shared(slowing)) >= abs(slowing) / 2 else None

    @property
    def more_repeats(self) -> int | None:
        """More repeats of each side that the speed metric needs; None if they do not help."""
        needed = [row.more_repeats for row in self.speed_rows if row.verdict == "cannot tell"]
        known = [count for count in needed if count is not None]
        return max(known, default=0) if len(known) == len(needed) else None

    @property
    def doubts(self) -> tuple[tuple[Side, Doubt], ...]:
        """The doubts of both sides."""
        return tuple((side, doubt) for side in (self.a, self.b) for doubt in side.doubts)


def compare_sides(
    a: Side,
    b: Side,
    *,
    wanted: float = DEFAULT_DIFFERENCE,
    at: Sequence[int] = (),
    false_alarm: float = FALSE_ALARM,
) -> Comparison:
    """Compare ``b`` with ``a`` on all common numbers of devices, or only those of ``at``."""
    points = matched_points(a, b)
    if at:
        points = [pair for pair in points if pair[0].devices in at]
    if not points:
        raise NotEnoughData(
            f"{a.source} and {b.source} have no number of devices in common",
            hint=f"they have {_counts(a)}, and {_counts(b)}"
            + (f"; asked for: {', '.join(map(str, at))}" if at else ""),
        )
    known = {metric: pairs for metric in METRICS if (pairs := metric_pairs(a, b, metric, points))}
    reasons = _not_comparable(a, b, points)
    tested = {metric: pairs for metric, pairs in known.items() if metric not in reasons}
    if not tested.keys() & set(SPEED_METRICS):
        raise NotEnoughData(
            f"{a.source} and {b.source} have neither throughput nor time in common",
            hint="compare studies of the same work, or tables with the same columns",
        )
    settings = setting_differences(a, b)
    shifts, same_machine = machine_shifts(a, b, points), is_same_machine(settings)
    speed = _speed_metric(tested)
    others = max(len(tested) - 1, 1)
    rows: list[MetricDifference] = []
    for metric, pairs in tested.items():
        share = SPEED_SHARE if metric == speed else (1 - SPEED_SHARE) / others
        level = false_alarm * share
        applied = shifts if same_machine else {}
        rows += compare_metric(a, b, metric, pairs, wanted, level, applied)
    comparison = Comparison(
        a=a,
        b=b,
        wanted=wanted,
        rows=tuple(rows),
        settings=settings,
        machine=tuple(shifts.values()),
        same_machine=same_machine,
        not_compared=tuple(item for item in reasons.items() if item[0] in known),
    )
    return _with_causes(comparison, points) if a.runs and b.runs else comparison


def compare_sources(
    sources: Sequence[Sequence[Side]],
    where: Mapping[str, Any] | None = None,
    *,
    wanted: float = DEFAULT_DIFFERENCE,
    at: Sequence[int] = (),
) -> list[Comparison]:
    """Compare two sources, each with its curves, or the two curves of a single source."""
    if len(sources) == 1:
        pairs = [split_source(sources[0], where)]
    else:
        first, second = sources
        pairs = match_sides(first, second, where)
    # All pairs together are one family of tests.
    level = FALSE_ALARM / len(pairs)
    return [compare_sides(a, b, wanted=wanted, at=at, false_alarm=level) for a, b in pairs]


def parse_difference(text: str) -> float:
    """Return a relative difference as a share.

    >>> parse_difference("3%"), parse_difference("0.03")
    (0.03, 0.03)
    """
    digits = text.strip().removesuffix("%").strip()
    try:
        share = float(digits) / (100 if "%" in text else 1)
    except ValueError:
        share = math.nan
    if not 0 < share < 1:
        problem = f"{parameter('difference')} takes a share between 0 and 100 %, got {shown(text)}"
        raise SpecError(problem, hint=f"for example {parameter('difference', '3%')}")
    return share


def matched_points(a: Side, b: Side) -> list[tuple[Point, Point]]:
    """Return a pair of points for each common number of devices: the first pair on the same number
    of nodes, or the first points if there is none.
    """
    first, second = points_by_devices(a), points_by_devices(b)
    return [
        min(product(points, second[devices]), key=lambda pair: pair[0].nodes != pair[1].nodes)
        for devices, points in first.items()
        if devices in second
    ]


def points_by_devices(side: Side) -> dict[int, list[Point]]:
    """Return the points of a side by their number of devices; several differ in nodes."""
    points: dict[int, list[Point]] = {}
    for point in side.curve.points:
        points.setdefault(point.devices, []).append(point)
    return points


def _counts(side: Side) -> str:
    return ", ".join(str(point.devices) for point in side.curve.points)


def _speed_metric(metrics: Container[str]) -> str:
    return "throughput" if "throughput" in metrics else "time"


def comparable_units(sides: Iterable[Side]) -> bool:
    """Say whether the throughputs of all sides mean the same."""
    units = {side.curve.unit for side in sides}
    # "samples" is also what an unnamed unit is called.
    return len(units) == 1 or (RELATIVE_UNIT not in units and len(units - {"samples"}) == 1)


def _not_comparable(a: Side, b: Side, points: Sequence[tuple[Point, Point]]) -> dict[str, str]:
    """Return the metrics that must not be compared, each with its reason."""
    reasons = {}
    if not comparable_units([a, b]):
        reasons["throughput"] = "unit"
    if not all(same_work(before, after) for before, after in points):
        is_known = all(point.samples is not None for pair in points for point in pair)
        reason = "work" if is_known else "unknown work"
        reasons |= {"time": reason, "energy": reason}
    return reasons


def _with_causes(comparison: Comparison, points: Sequence[tuple[Point, Point]]) -> Comparison:
    """Return the comparison with the causes that changed: at its headline, if speed differs."""
    headline = comparison.headline
    runs: list[RunsOfPoint] = [
        (comparison.a.runs_at(before), comparison.b.runs_at(after)) for before, after in points
    ]
    counts = [before.devices for before, _ in points]
    index = counts.index(headline.devices) if headline.is_different else len(points) - 1
    steps, job = step_changes(runs, index), job_changes(runs, index)
    if not headline.is_different:
        is_doubtful = doubt_error(comparison.a, comparison.b, counts[index]) > 0
        is_doubtful |= comparison.machine_row is not None
        moved = None if is_doubtful else hidden_cause(steps, FALSE_ALARM)
    elif comparison.shared_shift:
        moved = None
    else:
        grew = not headline.is_better
        moved = moved_cause(steps, grew=grew)
        if headline.metric == "time":
            moved = _largest_of_job(runs[index], moved, moved_cause(job, grew=grew))
    return replace(comparison, causes=(*steps, *job), moved=moved, cause_devices=counts[index])


def _largest_of_job(
    runs: RunsOfPoint, in_steps: CauseChange | None, in_job: CauseChange | None
) -> CauseChange | None:
    """Return which of two causes changed more over the complete job."""
    if in_steps is None or in_job is None:
        return in_job or in_steps
    seconds = abs(in_steps.change.value) * runs[0][0].steps
    return in_steps if seconds > abs(in_job.change.value) else in_job
