"""Titles of slides about several curves: which of them is ahead, and where they agree."""

from collections import Counter
from collections.abc import Sequence

from scalewise.analysis.measure import Estimate
from scalewise.analysis.number_format import (
    format_count,
    format_duration,
    format_percent,
    format_rounded,
)
from scalewise.report.curve_report import CurveReport
from scalewise.report.text.slides import shown_point
from scalewise.report.text.summary import COST_TEXT

Reports = Sequence[CurveReport]
UNKNOWN_SPREAD = 0.05
"""Relative error of a number that was measured once: a smaller lead is not called one."""


def verdict_of_several(reports: Reports) -> str:
    """Return for how many curves more devices are worth it."""
    verdicts = Counter(report.summary.verdict for report in reports)
    if blocked := verdicts["not reliable"]:
        return f"The results of {blocked} of {len(reports)} are not reliable"
    return f"More devices are worth it for {verdicts['yes']} of {len(reports)}"


def _clear_best(estimates: Sequence[Estimate | None]) -> int | None:
    """Return the position of the largest estimate, if the intervals of the others are below it."""
    known = [estimate for estimate in estimates if estimate]
    if len(known) < len(estimates):
        return None
    best = max(range(len(known)), key=lambda index: known[index].value)
    low = known[best].low or known[best].value / (1 + UNKNOWN_SPREAD)
    others = [estimate for index, estimate in enumerate(known) if index != best]
    return best if all((estimate.high or estimate.value) < low for estimate in others) else None


def fastest_of_several(reports: Reports) -> str:
    """Return which curve has the highest throughput on the devices that slides speak of."""
    points = [shown_point(report) for report in reports]
    index = _clear_best([point.throughput for point in points])
    if index is None or len({report.curve.rate_label for report in reports}) > 1:
        return "How fast each is"
    point, curve = points[index], reports[index].curve
    assert point.throughput is not None  # It is the largest.
    rate = format_rounded(point.throughput.value)
    return f"{curve.name} is fastest: {rate} {curve.rate_label} on {format_count(point.devices)}"


def efficiency_of_several(reports: Reports) -> str:
    """Return the efficiency on the most devices that all curves were measured on."""
    shares = [
        {point.devices: point.efficiency for point in report.curve.points if point.efficiency}
        for report in reports
    ]
    common = set.intersection(*(set(known) for known in shares))
    if len(common) < 2:
        return "How well each scales"
    most = max(common)
    estimates = [known[most] for known in shares]
    values = [estimate.value for estimate in estimates]
    low, high = format_percent(min(values), 0), format_percent(max(values), 0)
    devices = format_count(most)
    if low == high:
        return f"All keep {low} efficiency on {devices}"
    index = _clear_best(estimates)
    if index is None:
        return f"They keep {low} to {high} efficiency on {devices}"
    name = reports[index].curve.name
    return f"{name} scales best: {high} efficiency on {devices}; the lowest has {low}"


def limits_of_several(reports: Reports) -> str:
    """Return which cause costs most in most curves."""
    costs = [report.summary.limit or report.summary.cost for report in reports]
    causes = Counter(cost.cause for cost in costs if cost)
    if not causes:
        return "What takes the time"
    cause, count = causes.most_common(1)[0]
    if len(causes) > 1 and count == 1:
        return "Each is limited by something else"
    text = COST_TEXT[cause]
    return f"{text[0].upper()}{text[1:]} costs most in {count} of {len(reports)}"


def times_of_several(reports: Reports) -> str:
    """Return which curve takes the least time, if they all do the same work."""
    works = {(r.summary.curve.work, r.summary.curve.unit_of_work) for r in reports}
    chosen = [report.summary.chosen for report in reports]
    times = [scale.time if scale else None for scale in chosen]
    index = _clear_best([time and time.through(lambda seconds: 1 / seconds) for time in times])
    if len(works) > 1 or index is None:
        return "How long each takes"
    scale, time = chosen[index], times[index]
    assert scale is not None  # It is the shortest.
    assert time is not None
    name, devices = reports[index].curve.name, format_count(scale.devices)
    return f"{name} is done first: {format_duration(time.value)} on {devices}"


def conclusion_of_several(reports: Reports) -> str:
    """Return what to use, if it is the same for all curves."""
    counts = {r.summary.chosen.devices if r.summary.chosen else None for r in reports}
    if len(counts) == 1 and (devices := counts.pop()):
        return f"Use {format_count(devices)} for each"
    return "What to do with each"


def trust_of_several(reports: Reports) -> str:
    """Return how many curves have serious doubts."""
    doubted = sum(any(d.severity != "notes" for d in r.summary.doubts) for r in reports)
    if not doubted:
        return "No serious doubt about these results"
    return f"There are doubts about {doubted} of {len(reports)}"
