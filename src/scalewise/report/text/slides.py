"""Titles of slides: each is a sentence that says what the slide shows."""

from collections.abc import Callable

from scalewise.analysis.advise import Scale
from scalewise.analysis.measure import Estimate, Point
from scalewise.analysis.measure.curve import ONE_EPOCH, RELATIVE_UNIT
from scalewise.analysis.number_format import (
    format_count,
    format_duration,
    format_percent,
    format_rounded,
)
from scalewise.analysis.predict import PredictedPoint
from scalewise.analysis.summary import Summary
from scalewise.report.curve_report import CurveReport
from scalewise.report.text.measurement import has_throughput
from scalewise.report.text.verdict import job_text, time_efficiency

GOOD_EFFICIENCY = 0.8
"""Up to which number of devices efficiency stays above this share is said."""


def basis_title(summary: Summary) -> str:
    """Return by what numbers of devices are compared."""
    if not summary.chosen or not summary.chosen.time:
        return "By throughput of the training steps"
    if unit := summary.curve.unit_of_work:
        title = f"By the time per {unit}, without start-up"
    elif full_run := summary.curve.full_run:
        title = f"By the time of the full run of {full_run.text}"
    elif summary.curve.work == ONE_EPOCH:
        title = "By the time of one epoch"
    else:
        title = "By complete time, from launch to end"
    return f"{title}; efficiency by throughput" if has_throughput(summary.curve) else title


def shown_point(report: CurveReport) -> Point:
    """Return the point that slides speak of: the chosen one, else the largest."""
    chosen = report.summary.chosen
    points = report.curve.points
    return next((p for p in points if chosen and p.devices == chosen.devices), points[-1])


def performance_title(report: CurveReport) -> str:
    """Return the absolute speed on the chosen number of devices."""
    point, curve = shown_point(report), report.curve
    devices = format_count(point.devices)
    verb = "process" if point.devices > 1 else "processes"
    if point.throughput is None:
        return time_title(report)
    rate = format_rounded(point.throughput.value)
    if curve.unit == RELATIVE_UNIT:
        return f"{devices} {'are' if point.devices > 1 else 'is'} {rate} times the baseline"
    each = format_rounded(point.throughput.value / point.devices)
    share = f", {each} each" if point.devices > 1 else ""
    return f"{devices} {verb} {rate} {curve.rate_label}{share}"


def scaling_title(report: CurveReport) -> str | None:
    """Return up to which number of devices efficiency stays high; None if it is unknown."""
    points = [(p.devices, p.efficiency.value) for p in report.curve.points if p.efficiency]
    if len(points) < 2:
        return None
    good = 0
    for devices, share in points:
        if share < GOOD_EFFICIENCY:
            break
        good = devices
    state = "of the training steps" if has_throughput(report.curve) else "by complete time"
    limit, (most, last) = format_percent(GOOD_EFFICIENCY, 0), points[-1]
    final = format_percent(last, 0)
    if good == most:
        return (
            f"Efficiency {state} stays above {limit} up to {format_count(most)}, "
            f"the most measured: {final}"
        )
    if good > points[0][0]:
        return (
            f"Efficiency {state} stays above {limit} up to {format_count(good)}; "
            f"on {most:,} it is {final}"
        )
    second, share = points[1]
    fall = f"Efficiency {state} is {format_percent(share, 0)} on {format_count(second)} already"
    return fall if second == most else f"{fall}; on {most:,} it is {final}"


def time_efficiency_sentence(summary: Summary) -> str:
    """Return the efficiency of the fastest scale by the time of the job, which has start-up; empty
    if efficiency is known by one of time and throughput alone.
    """
    fastest = summary.fastest
    if not fastest or not fastest.time or not has_throughput(summary.curve):
        return ""
    share = format_percent(time_efficiency(summary, fastest), 0)
    basis = basis_title(summary)
    return f"{basis}, it is {share} on {format_count(fastest.devices)}."


def time_title(report: CurveReport) -> str:
    """Return how long the job takes on the chosen number of devices, and its device-hours."""
    chosen, curve = report.summary.chosen, report.summary.curve
    point = shown_point(report)
    time = chosen.time if chosen else point.time
    if time is None:
        return f"The time on {format_count(point.devices)} is not known"
    subject = job_text(report.summary)
    if curve.unit_of_work and not chosen:  # A point of the rehearsal itself.
        subject = "The rehearsal"
    text = f"{subject} takes {format_duration(time.value)} on {format_count(point.devices)}"
    if chosen and chosen.device_hours:
        text += f": {format_rounded(chosen.device_hours.value)} device-hours"
    return text


def prediction_title(report: CurveReport) -> str | None:
    """Return what the next larger number of devices would give, with its interval."""
    prediction = report.prediction
    if prediction is None:
        return None
    largest = max(point.devices for point in report.curve.points)
    ahead = [point for point in prediction.points if point.devices > largest]
    return predicted_sentence(report, ahead[0]) if ahead else None


def predicted_sentence(report: CurveReport, point: PredictedPoint) -> str:
    """Return the predicted throughput, or else time, of a number of devices."""
    devices, curve = format_count(point.devices), report.curve
    if point.throughput:
        verb = "be" if curve.unit == RELATIVE_UNIT else "process"
        rate = f"{format_rounded(point.throughput.value)} {curve.rate_label}"
        return f"{devices} would {verb} {rate}{_interval(point.throughput, format_rounded)}"
    if point.time:
        time = f"{format_duration(point.time.value)}{_interval(point.time, format_duration)}"
        return f"{devices} would take {time}"
    return f"What {devices} would give is not known"


def _interval(estimate: Estimate, to_text: Callable[[float], str]) -> str:
    if estimate.low is None or estimate.high is None:
        return ""
    return f" (90 %: {to_text(estimate.low)} to {to_text(estimate.high)})"


def conclusion_title(summary: Summary) -> str:
    """Return what to do."""
    if summary.verdict == "not reliable":
        return "Mend the training or the data first, then measure again"
    if summary.chosen is None:
        return "Measure a second number of devices"
    verb = "Use" if summary.verdict == "yes" else "Stay with"
    return f"{verb} {format_count(summary.chosen.devices)}"


def purposes(summary: Summary) -> list[tuple[str, Scale]]:
    """Return what may count most, each with the measured scale that is best for it."""
    if not summary.advice or not summary.fastest:
        return []
    choices = summary.advice.choices
    rows = [
        ("time and device-hours alike", summary.advice.closest),
        ("only the time", summary.fastest),
        ("only the device-hours", min(choices, key=lambda scale: scale.device_time)),
    ]
    efficient = [s for s in choices if s.efficiency and s.efficiency.value >= GOOD_EFFICIENCY]
    if efficient:
        limit = format_percent(GOOD_EFFICIENCY, 0)
        rows.insert(2, (f"the time, at {limit} efficiency or more",
                        min(efficient, key=lambda scale: scale.slowness)))  # fmt: skip
    return rows


def trust_title(summary: Summary) -> str:
    """Return whether there are serious doubts about the results."""
    severities = {doubt.kind: doubt.severity for doubt in summary.doubts}
    if "blocks" in severities.values():
        return "These results are not reliable"
    if weakening := [*severities.values()].count("weakens"):
        verb = "weakens" if weakening == 1 else "weaken"
        return f"{format_count(weakening, 'doubt')} {verb} these results"
    return "No serious doubt about these results"
