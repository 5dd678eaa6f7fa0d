"""The verdict in plain sentences, as the first slide and the first page of the evidence show it."""

from scalewise.analysis.advise import Scale
from scalewise.analysis.advise.diminishing_returns import Cause
from scalewise.analysis.measure.curve import ONE_EPOCH
from scalewise.analysis.number_format import (
    format_count,
    format_duration,
    format_percent,
    format_rounded,
)
from scalewise.analysis.summary import MIN_COST_SHARE, Summary
from scalewise.report.text.certificate import certified_sentence
from scalewise.report.text.doubts import doubt_sentence, mend_text
from scalewise.report.text.measurement import has_throughput
from scalewise.report.text.method import as_sentence
from scalewise.report.text.summary import (
    COST_TEXT,
    cost_sentence,
    hours_text,
    interval_sentence,
    limit_sentence,
    two_efficiencies_sentence,
)

Answer = tuple[str, str]
"""A question in a few words, and its answer."""


def headline(summary: Summary) -> str:
    """Return the verdict as a sentence: how many devices, and what they give."""
    if summary.verdict == "not reliable":
        return "Do not use these results: they are not reliable"
    if summary.advice is None:
        return f"No answer yet: {summary.problem}"
    first, larger = compared_scales(summary)
    speedup = first.slowness / larger.slowness
    if summary.verdict == "no":
        gain = f"only {format_rounded(speedup)} times as fast" if speedup > 1 else "not faster"
        return f"Stay with {format_count(first.devices)}: {larger.devices:,} are {gain}"
    share = format_percent(time_efficiency(summary, larger), 0)
    return (
        f"{format_count(larger.devices)} are worth it: {format_rounded(speedup)} times as fast as "
        f"{first.devices:,}, at {share} {efficiency_label(summary)}"
    )


def compared_scales(summary: Summary) -> tuple[Scale, Scale]:
    """Return the fewest devices, and those that the verdict compares with them: the chosen ones, or
    if more devices are not worth it, the fastest.
    """
    assert summary.advice is not None  # Without advice nothing is compared.
    first, chosen = summary.advice.choices[0], summary.advice.closest
    if chosen is not first:
        return first, chosen
    fastest = summary.fastest
    return first, fastest if fastest and fastest is not first else summary.advice.choices[1]


def time_efficiency(summary: Summary, scale: Scale) -> float:
    """Return the efficiency of a scale by the time of the job; by throughput without times."""
    assert summary.advice is not None  # A scale belongs to an advice.
    base = summary.advice.choices[0]
    return base.slowness / scale.slowness * base.devices / scale.devices


def efficiency_label(summary: Summary) -> str:
    """Return the name of ``time_efficiency``: without more, efficiency is by throughput."""
    scales = summary.shown_scales
    by_time = scales and scales[0].time and has_throughput(summary.curve)
    return "efficiency by time" if by_time else "efficiency"


def verdict_answers(summary: Summary) -> list[Answer]:
    """Return what the headline leaves open: what is won, why not more devices, how sure."""
    if summary.verdict == "not reliable":
        nothing = "None can be advised until this is fixed and measured again."
        return [*blocked_answers(summary), ("How many devices?", nothing)]
    if summary.advice is None:
        hint = summary.problem.hint if summary.problem else ""
        return [("What to do?", as_sentence(hint))] if hint else []
    # Where more devices are worth it, the headline has the efficiency.
    efficiency = two_efficiencies_sentence(summary) if summary.verdict == "no" else ""
    answers = [
        ("What is gained?", gain_sentence(summary)),
        ("How efficient?", efficiency),
        *limit_answers(summary),
        ("Is it correct?", certified_sentence(summary.curve.certificates)),
        ("How sure?", trust_answer(summary)),
    ]
    return [(question, answer) for question, answer in answers if answer]


def blocked_answers(summary: Summary) -> list[Answer]:
    """Return what is wrong with results that are not reliable, and what to do about it."""
    blocking = next(doubt for doubt in summary.doubts if doubt.severity == "blocks")
    others = {d.kind for d in summary.doubts if d.severity == "blocks"} - {blocking.kind}
    problem = as_sentence(doubt_sentence(blocking))
    if others:
        problem += (
            f" There {'is' if len(others) == 1 else 'are'} {len(others)} more of such faults."
        )
    answers = [("What is wrong?", problem), ("How to fix it?", as_sentence(mend_text(blocking)))]
    return [(question, answer) for question, answer in answers if answer]


def gain_sentence(summary: Summary) -> str:
    """Return the times, or else the throughputs, that the verdict compares, and device-hours."""
    first, larger = compared_scales(summary)
    devices = f"{format_count(larger.devices)} instead of"
    if first.time and larger.time:
        text = (
            f"{job_text(summary)} takes {format_duration(larger.time.value)} on {devices} "
            f"{format_duration(first.time.value)} on {first.devices:,}"
        )
    elif first.throughput and larger.throughput:
        rates = [format_rounded(rate.value) for rate in (larger.throughput, first.throughput)]
        text = f"{rates[0]} {summary.curve.rate_label} on {devices} {rates[1]} on {first.devices:,}"
    else:
        return ""
    return f"{text}, for {hours_text(larger, first)}."


def trust_answer(summary: Summary) -> str:
    """Return whether there are serious doubts, and in which interval the chosen number lies."""
    is_doubtful = any(doubt.severity != "notes" for doubt in summary.doubts)
    text = "Less than usual: see the doubts." if is_doubtful else "No serious doubts were found."
    return f"{text} {interval_sentence(summary)}"


def job_text(summary: Summary) -> str:
    """Return what the times are the times of."""
    if summary.curve.full_run:
        return f"The full run of {summary.curve.full_run.text}"
    if summary.curve.work == ONE_EPOCH:
        return ONE_EPOCH.capitalize()
    return f"1 {summary.curve.unit_of_work}" if summary.curve.unit_of_work else "The job"


def limit_answers(summary: Summary) -> list[Answer]:
    """Return what takes most of the time beside computation, and why not more devices."""
    title = limit_title(summary)
    cost = as_sentence(title) if title else ""
    if summary.examined:
        cost = cost_sentence(summary)
    if limit := limit_sentence(summary):
        costs = [("What costs most?", cost)] if summary.cost else []
        return [("Why not more?", limit), *costs]
    cost = cost or "What takes the time is not known: a table does not show it."
    largest = max(point.devices for point in summary.curve.points)
    if summary.chosen and summary.chosen.devices == largest:
        more = f"More than {format_count(largest)} were not measured."
        return [("What limits it?", f"{cost} {more}")]
    return [("Why not more?", cost)]


def limit_title(summary: Summary) -> str | None:
    """Return what takes most of the time beside computation, on more devices than the chosen ones
    if it is there that it grows; None if that is unknown.
    """
    if summary.verdict == "not reliable":
        return None
    if summary.examined is None:
        cause = summary.advice.returns.cause if summary.advice else None
        return _cause_title(cause) if cause and cause.kind != "steps" else None
    if not summary.lost:
        return None
    point, cost = summary.examined, summary.cost
    if summary.limit and summary.beyond:
        point, cost = summary.beyond, summary.limit
    devices = format_count(point.devices)
    if cost is None:
        limit = format_percent(MIN_COST_SHARE, 0)
        return f"Nothing beside computation takes as much as {limit} of the time on {devices}"
    subject = COST_TEXT[cost.cause]
    of_what = "the training" if summary.start_excluded else "the time"
    return (
        f"{subject[0].upper()}{subject[1:]} takes {format_percent(cost.share, 0)} of {of_what} "
        f"on {devices}"
    )


def _cause_title(cause: Cause) -> str:
    subject = {
        "spans": "Time outside training is",
        "fixed": "Fixed costs (such as launch, data, build, compile) are",
        "growing": "Costs that grow with the number of devices are",
        "growing outside steps": "Costs outside the steps that grow with the devices are",
    }.get(cause.kind, "Other costs are")
    share = format_percent(cause.seconds / cause.total, 0)
    return f"{subject} about {share} of the time on {format_count(cause.devices)}"
