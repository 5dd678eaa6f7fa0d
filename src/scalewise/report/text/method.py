"""Sentences about how a curve was measured, and where: for slides and allocation proposals."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from scalewise.analysis.explain.environment import Environment
from scalewise.analysis.measure import Point, ScalingCurve
from scalewise.analysis.number_format import format_count, join_with_and
from scalewise.report.curve_report import CurveReport
from scalewise.report.text.measurement import COVERAGE_TEXT, full_run_line, has_throughput
from scalewise.report.text.read_as import read_as_lines

MAX_NAMES = 8
"""More hosts or variables than these are counted and not all named."""


def method_sentences(report: CurveReport) -> list[str]:
    """Return how the numbers of a curve were measured and computed."""
    curve = report.curve
    sentences = [_source_sentence(report), *_window_sentences(curve), _interval_sentence(curve)]
    if has_throughput(curve):
        sentences.append(
            "Throughput is the samples of all ranks per second of wall-clock time in the steady "
            "state; speedup is the throughput divided by that of "
            f"{format_count(curve.baseline.devices)}; efficiency is the speedup divided by the "
            "growth in devices."
        )
    else:
        sentences.append(
            f"Speedup is the time on {format_count(curve.baseline.devices)} divided by the time; "
            "efficiency is the speedup divided by the growth in devices."
        )
    if any(point.complete for point in curve.points):
        sentences.append("Complete times are from the launch of a job to its end, with start-up.")
    if line := full_run_line(report.summary.curve):
        sentences.append(as_sentence(line))
    covered = dict.fromkeys(p.energy_covers for p in curve.points if p.energy and p.energy_covers)
    return [*sentences, *(as_sentence(COVERAGE_TEXT[name]) for name in covered)]


def as_sentence(line: str) -> str:
    """Return a line with a capital letter and a full stop.

    >>> as_sentence("energy is as the table gives it")
    'Energy is as the table gives it.'
    """
    return f"{line[:1].upper()}{line[1:].rstrip('.')}."


def _source_sentence(report: CurveReport) -> str:
    environment = report.explanation.environment if report.explanation else None
    if environment is None:
        read = " ".join(read_as_lines(report.curve))
        return (
            f"The numbers come from the table {report.source}; how they were measured is not "
            f"recorded. {read}".strip()
        )
    days = days_text(environment)
    return (
        f"{format_count(environment.runs, 'run')}{f' on {days}' if days else ''}, each started "
        "separately; every rank recorded its own steps."
    )


def days_text(environment: Environment) -> str:
    """Return the day on which runs were measured, or the first and the last one."""
    ends = [second for second in (environment.started, environment.ended) if second]
    days = dict.fromkeys(datetime.fromtimestamp(end, UTC).strftime("%Y-%m-%d") for end in ends)
    return " to ".join(days)


def _window_sentences(curve: ScalingCurve) -> list[str]:
    excluded = dict.fromkeys(point.left_out for point in curve.points if point.left_out)
    if not excluded:
        return []
    if [*excluded] == ["nothing"]:
        return ["No steps were excluded as warm-up."]
    return [f"Warm-up is excluded from rates: {'; '.join(excluded)}."]


def _interval_sentence(curve: ScalingCurve) -> str:
    counts = repeats(curve.points)
    fewest, most = min(counts), max(counts)
    if most > 1:
        number = str(most) if fewest == most else f"{fewest} to {most}"
        return (
            f"Each number of devices was measured {number} times; intervals are 90 % (Student's t "
            "over the logarithms of the repeats), widened where a doubt was found."
        )
    has_interval = any(
        estimate and estimate.low is not None
        for point in curve.points
        for estimate in (point.throughput, point.time)
    )
    if has_interval:
        return (
            "Each number of devices was measured once; 90 % intervals come from the spread of its "
            "steps, so the difference between repeats is not in them."
        )
    return (
        "Each number of devices was measured once; where an interval is given, it is that of the "
        "prediction from all points."
    )


def repeats(points: Sequence[Point]) -> list[int]:
    """Return how often each number of devices was measured."""
    return [
        estimate.count if (estimate := point.throughput or point.time) else 1 for point in points
    ]


def environment_rows(reports: Sequence[CurveReport]) -> list[tuple[str, str]]:
    """Return hardware and software as names and values; empty if no run recorded them."""
    known = [r.explanation.environment for r in reports if r.explanation]
    environments = [environment for environment in known if environment]
    if not environments:
        return []
    per_node = [str(r.curve.devices_per_node) for r in reports if r.curve.devices_per_node]
    rows: dict[str, list[str]] = {"devices": [], "devices per node": per_node}
    for environment in environments:
        for name, values in environment.facts.items():
            rows.setdefault(name, []).extend(values)
    rows["variables"] = _variable_texts(environments)
    rows["runs"] = [f"{sum(e.runs for e in environments):,}"]
    texts = {name: list_values(values) for name, values in rows.items()}
    texts["measured"] = " to ".join(dict.fromkeys(days_text(e) for e in environments))
    return [(name, value) for name, value in texts.items() if value]


def _variable_texts(environments: Sequence[Environment]) -> list[str]:
    return [
        f"{key}={value}"
        for environment in environments
        for key, values in environment.variables.items()
        for value in values
    ]


def list_values(values: Iterable[str]) -> str:
    """Return the distinct values; of many, the first ones and the number of the others."""
    distinct = [*dict.fromkeys(values)]
    shown = distinct[:MAX_NAMES]
    more = [f"{len(distinct) - MAX_NAMES} more"] if len(distinct) > MAX_NAMES else []
    return join_with_and([*shown, *more]) if distinct else ""
