"""Sentences of the evidence for a proposal: the requested scale, and what supports it."""

from scalewise.analysis.advise.requested_scale import RequestedScale
from scalewise.analysis.measure import Doubt, Estimate, ScalingCurve
from scalewise.analysis.measure.curve import ONE_EPOCH
from scalewise.analysis.number_format import (
    format_count,
    format_duration,
    format_estimate,
    format_percent,
    format_rounded,
    format_rounded_estimate,
)
from scalewise.analysis.summary import Summary
from scalewise.errors import parameter
from scalewise.report.text.certificate import certified_sentence
from scalewise.report.text.doubts import doubt_sentence, mend_text
from scalewise.report.text.method import as_sentence
from scalewise.report.text.prediction import UNKNOWNS
from scalewise.report.text.summary import interval_sentence, two_efficiencies_sentence
from scalewise.report.text.verdict import (
    Answer,
    blocked_answers,
    gain_sentence,
    headline,
    limit_answers,
)

SCALING_TITLES = {
    "strong": "Strong scaling",
    "weak": "Weak scaling",
    None: "Scaling (strong or weak is not stated)",
}
"""By scaling of a curve: the heading of its tables."""
SCALING_TEXT = {
    "strong": "The global batch is the same on every number of devices, so each device gets less "
    "work as their number grows.",
    "weak": "The batch per device is the same on every number of devices, so the global batch "
    "grows with their number.",
    None: "Whether the batch per device or the global batch was kept is not stated.",
}
MISSING_TEXT = {
    "strong": "Strong scaling was not measured.",
    "weak": "Weak scaling was not measured.",
}
"""By scaling: what to say if no curve of a proposal has it."""


NOT_RELIABLE = "This study must not be used for a proposal: its results are not reliable"
MAX_DOUBTS = 2
"""So many doubts are stated in the summary; all of them have a section."""


def blocked_request(summary: Summary) -> list[Answer]:
    """Return why a study must not be used, and what to do."""
    then = "Then measure again, and make this document anew."
    (question, problem), *fixes = blocked_answers(summary)
    fix = " ".join([*(text for _, text in fixes), then])
    none = "None can be justified by these results."
    return [(question, problem), ("What to do?", fix), ("How many devices?", none)]


def request_title(scale: RequestedScale, summary: Summary) -> str:
    """Return the verdict about a request in one sentence."""
    devices, chosen = format_count(scale.devices), summary.chosen
    verb = "is" if scale.devices == 1 else "are"
    if chosen and chosen.devices == scale.devices:
        return headline(summary)
    title = f"{devices} {verb} requested"
    if scale.basis != "measured":
        title += ": a prediction, not a measurement"
    return f"{title}; the measurements suggest {chosen.devices:,}" if chosen else title


def request_answers(scale: RequestedScale, summary: Summary) -> list[Answer]:
    """Return what is asked for, why that many, what limits more, how sure that is, and doubts."""
    is_chosen = summary.chosen and summary.chosen.devices == scale.devices
    is_base = scale.devices == summary.curve.baseline.devices
    reasons = [
        f"{gain_sentence(summary)} {two_efficiencies_sentence(summary)}".strip()
        if is_base and is_chosen
        else efficiency_sentence(scale, summary.curve),
        "" if is_chosen else choice_sentence(scale, summary),
    ]
    doubts = [d for d in {d.kind: d for d in (*scale.doubts, *summary.doubts)}.values()
              if d.severity == "weakens"]  # fmt: skip
    texts = [as_sentence(doubt_sentence(doubt)) for doubt in doubts[:MAX_DOUBTS]]
    if others := len(doubts) - MAX_DOUBTS:
        texts += [f"{others} more: see “Doubts and limits”."] if others > 0 else []
    answers = [
        ("What is requested?", request_sentence(scale, summary.curve)),
        ("Why this many?", " ".join(filter(None, reasons))),
        *(limit_answers(summary) if summary.advice else []),
        ("Is it correct?", certified_sentence(summary.curve.certificates)),
        ("How sure?", " ".join(support_sentences(scale, summary))),
        ("What is doubtful?", " ".join(texts)),
    ]
    return [(question, answer) for question, answer in answers if answer]


def request_sentence(scale: RequestedScale, curve: ScalingCurve) -> str:
    """Return the request in one sentence: devices, nodes, time, device-hours or node-hours."""
    nodes = f" on {format_count(scale.nodes, 'node')}" if scale.nodes else ""
    text = f"{format_count(scale.devices)}{nodes}"
    if scale.time is None or scale.device_hours is None:
        return f"{text}. The time is not known: only throughputs were measured."
    hours = f"{format_rounded_estimate(scale.device_hours)} device-hours"
    if scale.node_hours:
        hours += f", {format_rounded_estimate(scale.node_hours)} node-hours"
    takes = "takes" if scale.basis == "measured" else "is predicted to take"
    if curve.unit_of_work:
        length = "90 epochs" if curve.samples_per_epoch else f"1e9 {curve.unit}"
        return (
            f"{text}. 1 {curve.unit_of_work} {takes} {_duration(scale.time)} and {hours}, without "
            f"start-up; the total is known once the training is stated with "
            f"{parameter('full_run', length)}."
        )
    if curve.full_run is None and curve.work == ONE_EPOCH:
        return f"{text}. {ONE_EPOCH.capitalize()} {takes} {_duration(scale.time)}: {hours}."
    work = f"the full run of {curve.full_run.text}" if curve.full_run else "the measured job"
    return f"{text}. One run ({work}) {takes} {_duration(scale.time)}: {hours}."


def _duration(estimate: Estimate) -> str:
    return format_estimate(estimate, format_duration)


def support_sentences(scale: RequestedScale, summary: Summary) -> list[str]:
    """Return whether a scale was measured, and whether the data supports it."""
    devices, estimate = format_count(scale.devices), scale.throughput or scale.time
    were = "was" if scale.devices == 1 else "were"
    if scale.basis == "measured":
        runs = estimate.count if estimate else 0
        is_counted = runs > 1 or (runs and summary.curve.rehearsal)
        how = f" in {format_count(runs, 'run')}" if is_counted else ""
        sentences = [f"{devices} {were} measured{how}; {_time_basis(summary.curve)}."]
        if not any(doubt.severity == "weakens" for doubt in summary.doubts):
            sentences.append("No serious doubts were found.")
    elif scale.basis == "between":
        sentences = [f"{devices} were not measured: the values are interpolated between points."]
    else:
        reach = format_rounded(scale.devices / scale.largest)
        sentences = [
            f"{devices} were not measured: the values are extrapolated from at most "
            f"{format_count(scale.largest)}, by a factor of {reach}."
        ]
    if scale.unknown:
        sentences.append(as_sentence(UNKNOWNS[scale.unknown]))
    if scale.basis != "measured":
        verdict = "supports" if scale.supported else "does not support"
        sentences.append(
            f"The data {verdict} this prediction{'' if scale.supported else ' yet'}; a run on "
            f"{devices} would replace it."
        )
    if any(estimate and estimate.low is not None for estimate in (scale.time, scale.efficiency)):
        sentences.append("Numbers in brackets are 90 % intervals.")
    elif summary.chosen and summary.chosen.devices == scale.devices:
        sentences.append(interval_sentence(summary))
    return sentences


def _time_basis(curve: ScalingCurve) -> str:
    if curve.full_run:
        return "the time of the full run is computed: start-up once, then the measured rate"
    return "nothing is extrapolated"


def doubt_and_fix(doubt: Doubt) -> str:
    """Return a doubt with what to do about it."""
    fix, sentence = mend_text(doubt), doubt_sentence(doubt).rstrip(".")
    return f"{sentence}. To fix it: {fix[0].lower()}{fix[1:]}" if fix else sentence


def efficiency_sentence(scale: RequestedScale, curve: ScalingCurve) -> str:
    """Return the efficiency of a scale, and its device-hours against the fewest devices."""
    base_devices = curve.baseline.devices
    base, parts = format_count(base_devices), []
    if scale.efficiency:
        basis = "by throughput" if curve.baseline.throughput else "by time"
        share = format_estimate(scale.efficiency, lambda value: format_percent(value, 0))
        verb = "is" if scale.basis == "measured" else "is predicted to be"
        text = f"parallel efficiency against {base} {verb} {share} {basis}"
        if curve.baseline.throughput and scale.time_efficiency and scale.devices != base_devices:
            text += f" and {format_percent(scale.time_efficiency, 0)} by the time of the job"
        parts.append(text)
    hours = scale.device_hours
    if hours and scale.baseline_device_hours and scale.devices != base_devices:
        ratio = format_rounded(hours.value / scale.baseline_device_hours)
        times = "as many device-hours as" if ratio == "1" else f"{ratio} times the device-hours of"
        parts.append(f"the same work costs {times} {base}")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}." if text else ""


def choice_sentence(scale: RequestedScale, summary: Summary) -> str:
    """Return how a scale compares with the one that measurements suggest; empty if unknown."""
    chosen = summary.chosen
    if chosen is None or summary.advice is None:
        return ""
    rule = "the least product of time and device-hours among the measured numbers"
    if chosen.devices == scale.devices:
        return f"This is the scale that the measurements suggest: it has {rule}."
    text = f"The measurements suggest {format_count(chosen.devices)}, with {rule}"
    if chosen.time and scale.time and chosen.device_hours and scale.device_hours:
        faster = chosen.time.value / scale.time.value
        hours = format_rounded(scale.device_hours.value / chosen.device_hours.value)
        speed = f"{format_rounded(faster)} times as fast" if faster >= 1 else (
            f"{format_rounded(1 / faster)} times as slow"
        )  # fmt: skip
        text += f"; {format_count(scale.devices)} are {speed}, for {hours} times the device-hours"
    return f"{text}."


def justification_sentences(scale: RequestedScale, summary: Summary) -> list[str]:
    """Return how the requested scale follows from the measurements, and what would change it."""
    chosen = summary.chosen
    if not chosen or chosen.devices != scale.devices:
        return ["The summary says how it compares with the measurements."]
    is_base = scale.devices == summary.curve.baseline.devices
    sentences = (choice_sentence(scale, summary), "" if is_base else gain_sentence(summary))
    return [*filter(None, sentences)]
