"""The sentences of a summary: is it worth it, on how many devices, what costs most, what next."""

from scalewise.analysis.advise import Scale
from scalewise.analysis.explain.lost_time import LostTime
from scalewise.analysis.measure import Estimate
from scalewise.analysis.number_format import (
    format_count,
    format_duration,
    format_number,
    format_percent,
    format_rounded,
    list_counts,
)
from scalewise.analysis.summary import MIN_COST_SHARE, START_UP, Summary
from scalewise.report.escape import shell_word
from scalewise.report.text.advice import cause_sentence
from scalewise.report.text.certificate import certified_sentence
from scalewise.report.text.explanation import CAUSE_TEXT, point_action
from scalewise.report.text.measurement import full_run_line, two_efficiencies

COST_TEXT = {
    **CAUSE_TEXT,
    START_UP: "start-up",
    "validation": "validation",
    "checkpoints": "writing checkpoints",
    "shutdown": "ending the processes",
}
"""By cause of lost time: what the time is spent on."""
START_ACTIONS = {
    "launch": "Keep the Python environment on a fast disk, and import fewer packages.",
    "rendezvous": "Start all ranks at the same time: they wait for the last one.",
    "data": "Prepare the data set once, and open the prepared files.",
    "build": "Build the model on its device, and load its weights once per node.",
    "compile": "Keep the compile cache between runs, or compile fewer parts.",
    "restore": "Save smaller checkpoints, or read them from a faster disk.",
}
"""By the longest part of the start-up: what shortens it."""
COST_ACTIONS = {
    "validation": "Validate less often, or on fewer samples.",
    "checkpoints": "Save less often, or in the background.",
    "shutdown": "Close loaders and process groups before the program ends.",
}
WIDE_RATIO = 1.5
"""An interval whose ends differ by a larger factor is called rough."""
WHAT_IF_TEXT = {
    "twice the link": "A link of twice the bandwidth",
    "perfect balance": "Ranks of equal speed",
    "twice the loaders": "Twice the loader workers",
    "no validation": "No validation",
    "no checkpoint": "No checkpoints",
}
"""By change that was replayed: the subject of a sentence about its effect."""


def summary_lines(summary: Summary) -> list[str]:
    """Return the answer, one line for each question."""
    return [f"{label} {answer}" for label, answer in summary_answers(summary)]


def summary_answers(summary: Summary) -> list[tuple[str, str]]:
    """Return questions, each with its answer; those that have none are left out."""
    if summary.verdict == "not reliable":
        return [("Worth it?", worth_sentence(summary)), ("Next:", next_command(summary))]
    about = full_run_line(summary.curve)
    answers = [
        ("Worth it?", worth_sentence(summary)),
        ("How many?", _devices_sentence(summary)),
        ("What costs most?", cost_sentence(summary)),
        ("Why not more?", limit_sentence(summary)),
        ("What to try?", try_sentence(summary)),
        ("How efficient?", two_efficiencies_sentence(summary)),
        ("Is it correct?", certified_sentence(summary.curve.certificates)),
        ("How sure?", _trust_sentence(summary)),
        ("For what?", f"{about[0].upper()}{about[1:]}." if about else ""),
        ("Next:", next_command(summary)),
    ]
    return [(label, answer) for label, answer in answers if answer]


def worth_sentence(summary: Summary) -> str:
    """Say whether more devices are worth it, with the numbers behind it."""
    if summary.verdict == "not reliable":
        codes = dict.fromkeys(d.code for d in summary.doubts if d.severity == "blocks")
        return f"No answer: the results are not reliable ({', '.join(codes)}). Fix that first."
    advice = summary.advice
    if advice is None:
        problem = summary.problem
        return (
            f"Not known yet: {problem}{f' ({problem.hint})' if problem and problem.hint else ''}."
        )
    first, chosen = advice.choices[0], advice.closest
    if summary.verdict == "no":
        fastest = summary.fastest
        larger = fastest if fastest and fastest is not first else summary.shown_scales[1]
        return (
            f"No, stay with {format_count(first.devices)}: {_comparison(larger, first, only=True)}."
        )
    return f"Yes: {_comparison(chosen, first)}."


def _comparison(scale: Scale, base: Scale, *, only: bool = False) -> str:
    """Compare the speed and the device-hours of a scale with those of a smaller one."""
    speedup = base.slowness / scale.slowness
    speed = f"{'only ' if only else ''}{format_rounded(speedup)} times as fast as"
    if speedup < 1:
        speed = "slower than"
    text = f"{format_count(scale.devices)} are {speed} {base.devices:,}"
    if scale.time and base.time:
        times = [format_duration(time.value) for time in (scale.time, base.time)]
        text += f" ({' instead of '.join(times)})"
    return f"{text}, for {hours_text(scale, base)}"


def hours_text(scale: Scale, base: Scale) -> str:
    """Compare the device-hours of two scales."""
    ratio = format_rounded(scale.device_time / base.device_time)
    return "as many device-hours" if ratio == "1" else f"{ratio} times the device-hours"


def _devices_sentence(summary: Summary) -> str:
    advice = summary.advice
    if advice is None:
        return ""
    chosen, scales = advice.closest, advice.choices
    fastest = summary.fastest or chosen
    counts = list_counts([scale.devices for scale in scales])
    text = f"{chosen.devices:,}: the least time × device-hours (measured: {counts})."
    if fastest.devices != chosen.devices:
        text += f" If only time counts: {fastest.devices:,}."
    return text


def cost_sentence(summary: Summary) -> str:
    """Say what takes most of the time beside computation; empty if the results are wrong."""
    if summary.verdict == "not reliable":
        return ""
    if summary.examined is None:
        cause = summary.advice.returns.cause if summary.advice else None
        if cause and cause.kind != "steps":
            sentence = cause_sentence(cause).removeprefix("The cause is ")
            return sentence[0].upper() + sentence[1:]
        return "A table does not show it."
    devices, start_up, cost = summary.examined.devices, summary.start_up, summary.cost
    parts = []
    if cost is None and not summary.lost:
        parts.append("Not known: the parts of the complete time were not recorded.")
    elif cost is None:
        limit = format_percent(MIN_COST_SHARE, 0)
        parts.append(
            f"On {format_count(devices)} nothing beside computation takes as much as {limit} of "
            "the time."
        )
    else:
        of_what = "of the training" if summary.start_excluded else "of the time"
        parts.append(
            f"On {format_count(devices)} {_cost_text(cost)} takes {_share(cost)} {of_what}."
        )
    if summary.examined.ideal is None:
        parts.append("What happens inside a step was not recorded.")
    if summary.start_excluded and start_up and start_up.share >= MIN_COST_SHARE:
        parts.append(
            f"Start-up took {format_duration(start_up.seconds)}, {_share(start_up)} of these short "
            "runs; a longer training pays it once."
        )
    return " ".join(parts)


def limit_sentence(summary: Summary) -> str:
    """Say what takes a larger share of the time on more devices than are advised."""
    limit, beyond, examined = summary.limit, summary.beyond, summary.examined
    if limit is None or beyond is None or examined is None:
        return ""
    here = next((row.share for row in summary.lost if row.cause == limit.cause), 0.0)
    larger = format_count(beyond.devices)
    if beyond.nodes and examined.nodes and beyond.nodes > examined.nodes:
        larger += f" ({format_count(beyond.nodes, 'node')})"
    text = (
        f"{_cost_text(limit)} takes {_share(limit)} of the "
        f"{'training' if summary.start_excluded else 'time'} "
        f"({format_percent(here, 0)} on {format_count(examined.devices)})."
    )
    if _slower_than_chosen(summary, beyond.devices):
        counts = [point.devices for point in summary.curve.points]
        more = [devices for devices in counts if devices > beyond.devices]
        if more and all(_slower_than_chosen(summary, devices) for devices in more):
            on = format_count(beyond.devices)
            return f"{larger} and more are slower than {examined.devices:,}: on {on}, {text}"
        return f"{larger} are slower than {examined.devices:,}: {text}"
    return f"On {larger} {text}"


def _slower_than_chosen(summary: Summary, devices: int) -> bool:
    scales = {scale.devices: scale for scale in summary.advice.choices} if summary.advice else {}
    chosen, larger = summary.chosen, scales.get(devices)
    return bool(chosen and larger and larger.slowness > chosen.slowness)


def _share(cost: LostTime) -> str:
    return format_percent(cost.share, 0)


def _cost_text(cost: LostTime) -> str:
    text = COST_TEXT[cost.cause]
    return f"{text} (mostly {cost.longest_part})" if cost.cause == START_UP else text


def try_sentence(summary: Summary) -> str:
    """Say what to do about the largest cost, and what that would give."""
    cost, examined = summary.cost, summary.examined
    if summary.verdict == "not reliable":
        return ""
    if cost is None or examined is None:
        return ""
    if cost.cause == START_UP:
        action = START_ACTIONS.get(cost.longest_part or "", "")
    elif cost.cause in COST_ACTIONS:
        action = COST_ACTIONS[cost.cause]
    else:
        action = (examined.cause == cost.cause and point_action(examined)) or ""
    if effect := summary.what_if:
        subject = WHAT_IF_TEXT[effect.change]
        gain = f"{subject} would give {format_percent(effect.gain, 0)} more throughput."
        if not effect.gain:
            gain = f"{subject} would save {format_duration(effect.saved)}."
    else:
        gain = f"Without {COST_TEXT[cost.cause]} the time would be up to {_share(cost)} shorter "
        gain += f"on {format_count(examined.devices)}."
    return f"{action} {gain}".strip()


def two_efficiencies_sentence(summary: Summary) -> str:
    """Name both efficiencies, by throughput and by time, of the chosen number of devices or, if
    that is the fewest, of the most; empty if they hardly differ.
    """
    chosen = summary.chosen
    devices = chosen.devices if chosen and summary.verdict == "yes" else None
    text = two_efficiencies(summary.curve, devices) if chosen else ""
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _trust_sentence(summary: Summary) -> str:
    """Say which doubts there are, and in which interval the chosen time or throughput lies."""
    serious = dict.fromkeys(d.code for d in summary.doubts if d.severity != "notes")
    notes = sum(doubt.severity == "notes" for doubt in summary.doubts)
    noted = f", {format_count(notes, 'note')} (see `scalewise measure`)" if notes else ""
    text = f"No serious doubts{noted}."
    if serious:
        text = f"Less than usual: {', '.join(serious)} (see above)."
    chosen = summary.chosen
    if chosen is None:
        return text if serious else ""
    if not serious and _is_wide(chosen.time or chosen.throughput):
        text = "Not very: repeat the runs."
    return f"{text} {interval_sentence(summary)}"


def interval_sentence(summary: Summary) -> str:
    """Say in which interval the chosen time or throughput lies; empty if none is chosen."""
    chosen = summary.chosen
    if chosen is None:
        return ""
    estimate = chosen.time or chosen.throughput
    if estimate is None or estimate.low is None or estimate.high is None:
        return "Every number was measured once, so there is no interval."
    to_text = format_duration if chosen.time else format_rounded
    ends = [to_text(estimate.low), to_text(estimate.high)]
    if ends[0] == ends[1]:  # Rounded to three digits, the value may lie outside.
        seconds = " s" if chosen.time else ""
        ends = [f"{format_number(end)}{seconds}" for end in (estimate.low, estimate.high)]
    interval = f"{ends[0]} to {ends[1]}"
    quantity, unit = ("time", "") if chosen.time else ("throughput", f" {summary.curve.rate_label}")
    where = f"The {quantity} on {format_count(chosen.devices)}"
    rough = "only roughly known, " if _is_wide(estimate) else ""
    if chosen.fitted_interval:
        rough = f"was measured once; all points together predict {rough}"
    else:
        rough = f"is {rough}"
    return f"{where} {rough}{interval}{unit} (90 % interval)."


def _is_wide(estimate: Estimate | None) -> bool:
    if estimate is None or estimate.low is None or estimate.high is None:
        return False
    return estimate.high > WIDE_RATIO * estimate.low


def next_command(summary: Summary) -> str:
    """Return the command to run next."""
    source = shell_word(summary.source)
    if summary.curve.where:
        settings = (shell_word(f"{key}={value}") for key, value in summary.curve.where.items())
        where = "".join(f" --where {setting}" for setting in settings)
    else:
        where = ""
    options = where
    if summary.curve.full_run:
        options += f" --full-run {shell_word(summary.curve.full_run.text)}"
    largest = max(point.devices for point in summary.curve.points)
    has_records = summary.examined is not None
    length = "90 epochs" if summary.curve.unit_of_work == "epoch" else f"1e9 {summary.curve.unit}"
    return {
        "fix": f"scalewise {'explain' if has_records else 'measure'} {source}",
        "measure more": _measure_more(summary, largest),
        "full run": f'scalewise summary {source} --full-run "{length}"',
        "look further": f"scalewise predict {source}{options} --at {2 * largest}",
        "explain": f"scalewise explain {source}{options.removeprefix(where)}",
        "ask": f"scalewise advise {source}{options} --for efficiency=0.8",
    }[summary.next]


def _measure_more(summary: Summary, largest: int) -> str:
    """Return how to measure a second number of devices."""
    source = shell_word(summary.source)
    if program := summary.curve.conditions.get("program"):
        return f"scalewise run --on {largest},{2 * largest} -- {program}"
    if summary.examined is None:
        return f"add a row for another number of devices, then scalewise summary {source}"
    return "add a larger topology to the study file, then scalewise run STUDY.toml"
