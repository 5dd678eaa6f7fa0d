"""Conditions under which a comparison fails: ``throughput at 4 drops 3%``."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from scalewise.analysis.compare.comparison import Comparison
from scalewise.analysis.compare.metric_difference import MetricDifference
from scalewise.analysis.compare.side import METRICS
from scalewise.analysis.number_format import format_count
from scalewise.errors import SpecError, parameter, shown
from scalewise.validate import suggest_name

DROPS = ("drops", "falls", "decreases")
RISES = ("rises", "grows", "increases")
EXAMPLE = "throughput at 4 drops 3%"
_CONDITION = re.compile(
    r"(?P<metric>\w+)(?:\s+(?:at|on)\s+(?P<devices>\d+)(?:\s+devices?)?)?"
    r"\s+(?P<verb>[a-z]+)(?:\s+by)?\s+(?P<percent>\d+(?:\.\d+)?)\s*%",
    re.IGNORECASE,
)
Outcome = Literal["shown", "not shown", "cannot tell"]


@dataclass(frozen=True, slots=True)
class Condition:
    """A metric falls or rises by more than a share, on one number of devices or on any."""

    text: str
    metric: str
    devices: int | None
    rises: bool
    share: float

    @classmethod
    def parse(cls, text: str) -> "Condition":
        """Read a condition as a user writes it.

        >>> Condition.parse("time at 8 rises 5%")
        Condition(text='time at 8 rises 5%', metric='time', devices=8, rises=True, share=0.05)
        """
        match = _CONDITION.fullmatch(text.strip())
        if not match:
            raise _wrong(f"not a condition: {shown(text)}", "")
        metric, verb = match["metric"].lower(), match["verb"].lower()
        if metric not in METRICS:
            raise _wrong(
                f"no metric named {shown(metric)} in {shown(text)}", suggest_name(metric, METRICS)
            )
        if verb not in (*DROPS, *RISES):
            hint = suggest_name(verb, (*DROPS, *RISES)) or "write drops or rises"
            raise _wrong(f"not a change: {shown(verb)} in {shown(text)}", hint)
        devices = int(match["devices"]) if match["devices"] else None
        share = float(match["percent"]) / 100
        if verb in DROPS and share >= 1:
            raise _wrong(f"{metric} cannot drop by {match['percent']} %, in {shown(text)}", "")
        return cls(text.strip(), metric, devices, verb in RISES, share)

    @property
    def limit(self) -> float:
        """The logarithm of the ratio from which on the condition holds."""
        return math.log1p(self.share if self.rises else -self.share)


@dataclass(frozen=True, slots=True)
class ConditionResult:
    """Whether a condition holds, and the row by which that was judged."""

    condition: Condition
    outcome: Outcome
    row: MetricDifference


def check_conditions(
    comparisons: Sequence[Comparison], conditions: Sequence[Condition]
) -> list[ConditionResult]:
    """Judge conditions. One is shown if the estimate goes beyond its limit, and the verdict of the
    row says that the metric moved in this direction at all: one rule for both.
    """
    results = []
    for condition in conditions:
        rows = [row for comparison in comparisons for row in _rows(comparison, condition)]
        results.append(_worst([_judge(condition, row) for row in rows]))
    return results


def _rows(comparison: Comparison, condition: Condition) -> list[MetricDifference]:
    rows = [row for row in comparison.rows if row.metric == condition.metric]
    chosen = [row for row in rows if condition.devices in (None, row.devices)]
    if not chosen:
        counts = ", ".join(dict.fromkeys(str(row.devices) for row in rows))
        metrics = ", ".join(dict.fromkeys(row.metric for row in comparison.rows))
        what = f"{condition.metric} was not compared"
        if rows:
            what += f" on {format_count(condition.devices or 0)}"
        hint = f"{condition.metric} was compared on {counts}" if rows else f"there are: {metrics}"
        raise SpecError(f"{parameter('fail_if')} {shown(condition.text)}: {what}", hint=hint)
    return chosen


def _judge(condition: Condition, row: MetricDifference) -> ConditionResult:
    value = math.log(row.ratio.value)
    sign = 1 if condition.rises else -1
    exceeds = sign * value > sign * condition.limit
    if row.change is None:
        return ConditionResult(condition, "cannot tell", row)
    if exceeds:
        is_shown = row.verdict == ("higher" if condition.rises else "lower")
        return ConditionResult(condition, "shown" if is_shown else "cannot tell", row)
    far_end = max(sign * bound for bound in row.change.interval())
    outcome: Outcome = "cannot tell" if far_end > sign * condition.limit else "not shown"
    return ConditionResult(condition, outcome, row)


def _worst(results: Sequence[ConditionResult]) -> ConditionResult:
    """Return the result that counts; of equal ones, that of the row that moved most towards the
    condition.
    """
    order: tuple[Outcome, ...] = ("not shown", "cannot tell", "shown")

    def rank(result: ConditionResult) -> tuple[int, float]:
        ratio = result.row.ratio.value
        return order.index(result.outcome), ratio if result.condition.rises else -ratio

    return max(results, key=rank)


def _wrong(problem: str, hint: str) -> SpecError:
    example = f"for example {parameter('fail_if', EXAMPLE)}"
    return SpecError(problem, hint=f"{hint}; {example}" if hint else example)
