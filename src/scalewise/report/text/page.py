"""The sentences of the page: a headline, and the answer to the question of each section."""

from collections.abc import Sequence

from scalewise.analysis.measure import Point
from scalewise.analysis.number_format import (
    format_count,
    format_duration,
    format_energy,
    format_percent,
    format_rounded,
    join_with_and,
)
from scalewise.analysis.summary import Summary
from scalewise.report.curve_report import CurveReport
from scalewise.report.text.doubts import doubt_sentence, mend_text
from scalewise.report.text.explanation import (
    complete_time_sentence,
    point_sentence,
    rank_speed_sentence,
)
from scalewise.report.text.measurement import has_throughput
from scalewise.report.text.prediction import answer_sentences
from scalewise.report.text.summary import cost_sentence, summary_answers, worth_sentence

GOOD_EFFICIENCY = 0.8
"""Down to this efficiency, scaling is called good."""
EQUAL_SHARE = 0.02
"""Differences below this share of the value are called equal."""
MOST_OF = 0.8
"""A speedup in complete time below this share of that in training steps is explained."""
HEADLINES = {
    "yes": "Use {devices}",
    "no": "Stay with {devices}",
    "unknown": "No answer yet",
    "not reliable": "No answer: the results are not reliable",
}
"""By verdict: the headline of the page."""
LATER_QUESTIONS = ("How many?", "For what?")
"""Questions of the summary that the first screen answers below the next command."""
QUESTIONS = {
    "scaling": "How does it scale?",
    "causes": "What holds it back?",
    "time": "Where does the time go?",
    "ranks": "Are all ranks equal?",
    "memory": "How much memory does it need?",
    "cost": "What does it cost?",
    "more": "What would more devices give?",
    "compare": "How do they compare?",
    "method": "How was it measured?",
}
"""By key of a section of the page, in their order: its heading."""


def headline(summary: Summary) -> str:
    """Return the verdict in a few words: "Use 8 devices"."""
    devices = format_count(summary.chosen.devices) if summary.chosen else ""
    return HEADLINES[summary.verdict].format(devices=devices)


def lead_sentence(summary: Summary) -> str:
    """Return the sentence below the headline, without the verdict that the headline gives."""
    if summary.verdict == "not reliable":
        blocking = next(doubt for doubt in summary.doubts if doubt.severity == "blocks")
        sentence = doubt_sentence(blocking)
        return f"{sentence[0].upper()}{sentence[1:].removesuffix('.')}."
    sentence = worth_sentence(summary)
    if summary.verdict in ("yes", "no"):
        _, _, sentence = sentence.partition(": ")
    return sentence[0].upper() + sentence[1:]


def first_answers(summary: Summary) -> list[tuple[str, str]]:
    """Return the questions of the first screen that the headline does not answer."""
    if summary.verdict == "not reliable":
        blocking = next(doubt for doubt in summary.doubts if doubt.severity == "blocks")
        trust = "Not at all: no number of devices is advised until this is fixed."
        return [("How to fix it?", mend_text(blocking)), ("How sure?", trust)]
    return [
        (question, answer)
        for question, answer in summary_answers(summary)
        if question not in ("Worth it?", "Next:")
    ]


def machine_text(reports: Sequence[CurveReport]) -> str:
    """Return what all curves were measured on; empty if that is not recorded, or differs."""
    places = [report.explanation and report.explanation.environment for report in reports]
    names = {place.devices if place else () for place in places}
    devices = names.pop() if len(names) == 1 else ()
    if len(devices) != 1:
        return ""
    return "simulated machine" if devices == ("simulated",) else devices[0]


def hero_note(report: CurveReport) -> str:
    """Say how far the complete time falls behind the training steps that the first plot shows."""
    summary = report.summary
    scales = [scale for scale in (summary.advice.choices if summary.advice else ()) if scale.time]
    points = {point.devices: point for point in report.curve.points}
    if len(scales) < 2 or summary.start_excluded:
        return ""
    base, last = scales[0], max(scales, key=lambda scale: scale.devices)
    point = points.get(last.devices)
    speedup = base.slowness / last.slowness
    if not point or not point.speedup or speedup > MOST_OF * point.speedup.value:
        return ""
    return (
        f"These are training steps alone: {format_count(last.devices)} are "
        f"{format_rounded(point.speedup.value)} times as fast as {base.devices:,}. In complete "
        f"time, with start-up, they are {format_rounded(speedup)} times as fast."
    )


def scaling_answer(report: CurveReport) -> str:
    """Say how much faster the largest number of devices is, and up to where that is efficient."""
    if report.summary.verdict == "not reliable":
        return "Not known: the measured numbers below are not reliable."
    curve = report.curve
    compared = [point for point in curve.points if point.efficiency]
    if len(compared) < 2:
        counts = join_with_and([f"{point.devices:,}" for point in curve.points])
        were = "device was" if counts == "1" else "devices were"
        return f"Not known yet: only {counts} {were} measured."
    base, last = compared[0], compared[-1]
    by_throughput = has_throughput(curve)
    speedup = last.speedup if by_throughput else last.speedup_time
    efficiency = last.efficiency.value if last.efficiency else 0.0
    text = f"{format_count(last.devices)} reach {format_percent(efficiency, 0)} efficiency"
    if speedup:
        text = (
            f"{format_count(last.devices)} are {format_rounded(speedup.value)} times as fast as "
            f"{base.devices:,} in {'a training step' if by_throughput else 'complete time'}: "
            f"{format_percent(efficiency, 0)} of ideal"
        )
    good = [p for p in compared if p.efficiency and p.efficiency.value >= GOOD_EFFICIENCY]
    if good[-1] is base:
        text += f". Already {format_count(compared[1].devices)} keep less than "
        text += f"{format_percent(GOOD_EFFICIENCY, 0)}"
    elif good[-1] is not last:
        text += (
            f". Up to {format_count(good[-1].devices)}, at least "
            f"{format_percent(GOOD_EFFICIENCY, 0)} of ideal is kept"
        )
    return f"{text}."


def causes_answer(report: CurveReport) -> str:
    """Say what takes the time that is not computation."""
    if report.explanation is None:
        return cost_sentence(report.summary)
    examined = report.summary.examined or report.explanation.points[-1]
    return point_sentence(examined)


def time_answer(report: CurveReport) -> str:
    """Say what the complete time is spent on."""
    if report.explanation:
        examined = report.summary.examined or report.explanation.points[-1]
        if sentence := complete_time_sentence(examined, report.explanation.curve):
            return sentence
    timed = [point for point in report.curve.points if point.time]
    if not timed:
        return ""
    first, last = timed[0], timed[-1]
    text = f"The complete time is {_time(first)} on {format_count(first.devices)}"
    if last is not first:
        text += f" and {_time(last)} on {format_count(last.devices)}"
    return f"{text}."


def _time(point: Point) -> str:
    return format_duration(point.time.value) if point.time else ""


def ranks_answer(report: CurveReport) -> str:
    """Say whether all ranks are equally fast: of all numbers of devices, where one is slowest."""
    points = report.explanation.points if report.explanation else ()
    matrices = [(point.heat, point.devices) for point in points if point.heat]
    if not matrices:
        return ""
    heat, devices = max(matrices, key=lambda pair: (pair[0].is_straggler, pair[1]))
    sentence = rank_speed_sentence(heat)
    if not sentence:
        return ""
    return f"On {format_count(devices)}, {sentence[0].lower()}{sentence[1:]}"


def memory_answer(report: CurveReport) -> str:
    """Say how much memory a device needs, and whether that changes with their number."""
    known = [(point.devices, point.memory.value) for point in report.curve.points if point.memory]
    if not known:
        return ""
    (fewest, first), (most, last) = known[0], known[-1]
    if most == fewest or abs(last - first) <= EQUAL_SHARE * first:
        numbers = f"on {format_count(fewest)}" if most == fewest else "on any number of devices"
        return f"Each device needs {_gibibytes(max(first, last))} at its peak, {numbers}."
    change = "less" if last < first else "more"
    return (
        f"Each device needs {_gibibytes(first)} at its peak on {format_count(fewest)} and "
        f"{_gibibytes(last)} on {format_count(most)}: {format_percent(abs(last / first - 1), 0)} "
        f"{change}."
    )


def _gibibytes(size: float) -> str:
    return f"{format_rounded(size / 2**30)} GiB"


def cost_answer(report: CurveReport) -> str:
    """Compare the device-hours and the energy of the chosen number of devices with the fewest."""
    summary = report.summary
    chosen, scales = summary.chosen, summary.shown_scales
    if chosen is None or not scales:
        return ""
    base = scales[0]
    text = ""
    if chosen.device_hours and base.device_hours:
        unit = f" per {summary.curve.unit_of_work}" if summary.curve.unit_of_work else ""
        hours = format_rounded(chosen.device_hours.value)
        takes = "takes" if chosen.devices == 1 else "take"
        text = f"{format_count(chosen.devices)} {takes} {hours} device-hours{unit}"
        if chosen is not base:
            ratio = chosen.device_hours.value / base.device_hours.value
            text += f", {format_rounded(ratio)} times those of {base.devices:,}"
    if chosen.cost:
        text += f", for {format_rounded(chosen.cost.value)} {chosen.currency or ''}".rstrip()
    energies = {point.devices: point.energy for point in report.curve.points if point.energy}
    if energy := energies.get(chosen.devices):
        text += ", and " if text else f"On {format_count(chosen.devices)}: "
        text += f"{format_energy(energy, lambda e: format_rounded(e.value))} of energy"
    return f"{text}." if text else ""


def more_answer(report: CurveReport) -> str:
    """Say what is predicted for more devices, or why nothing is."""
    if report.prediction:
        answers = answer_sentences(report.prediction)
        return " ".join(answers[: len(report.prediction.points)])
    if problem := report.problem:
        return f"Not known: {problem}{f' ({problem.hint})' if problem.hint else ''}."
    return ""


def method_answer(report: CurveReport) -> str:
    """Say how many runs were measured, and of which length."""
    curve = report.curve.measured or report.curve
    counts = join_with_and([f"{point.devices:,}" for point in curve.points])
    repeats = [(p.throughput or p.time) for p in curve.points]
    runs = {estimate.count for estimate in repeats if estimate}
    text = f"Training was measured on {counts} device{'' if counts == '1' else 's'}"
    if report.explanation and runs:
        each = " to ".join(f"{count:,}" for count in dict.fromkeys((min(runs), max(runs))))
        noun = "once" if each == "1" else f"{each} times each"
        text += f", {noun}"
    steps = {point.steps for point in curve.points if point.steps}
    if steps:
        text += f", {' to '.join(f'{count:,}' for count in sorted({min(steps), max(steps)}))} steps"
    return f"{text}; intervals are 90 %." if report.explanation else f"{text}, as the table says."


def compare_answer(reports: Sequence[CurveReport]) -> str:
    """Say which curve is fastest on the largest number of devices that all have in common."""
    rates = [
        {point.devices: point.throughput.value for point in report.curve.points if point.throughput}
        for report in reports
    ]
    common = set.intersection(*(set(by_devices) for by_devices in rates))
    if not common or len({report.curve.unit for report in reports}) > 1:
        return "They have no number of devices in common, or count different things."
    devices = max(common)
    order = sorted(range(len(reports)), key=lambda index: -rates[index][devices])
    fastest, slowest = order[0], order[-1]
    ratio = rates[fastest][devices] / rates[slowest][devices]
    return (
        f"On {format_count(devices)}, {reports[fastest].curve.name} trains "
        f"{format_rounded(ratio)} times as many {reports[0].curve.unit} per second as "
        f"{reports[slowest].curve.name}."
    )
