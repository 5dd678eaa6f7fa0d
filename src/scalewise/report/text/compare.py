"""The sentences of a comparison: faster or slower, by how much, which cause moved, what next."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from scalewise.analysis.compare import (
    CauseChange,
    Comparison,
    ConditionResult,
    MachineShift,
    MetricDifference,
    Side,
)
from scalewise.analysis.compare.causes import moved_cause
from scalewise.analysis.compare.comparison import FALSE_ALARM
from scalewise.analysis.measure import Estimate
from scalewise.analysis.number_format import (
    format_count,
    format_duration,
    format_seconds,
    join_with_and,
)
from scalewise.errors import cut, shown
from scalewise.report.escape import shell_word
from scalewise.report.text.doubts import refuse_blocking

MAX_NAME = 60
"""A longer name of a side is cut in sentences."""
MAX_SETTINGS = 4
"""More differences in settings are only in the table."""
CAUSE_SUBJECTS = {
    "computation": "computation",
    "balance": "waiting for the slowest rank",
    "input": "waiting for input",
    "transfer": "the exchange of gradients",
    "orchestration": "other work in the loop",
    "start-up": "start-up",
    "validation": "validation",
    "checkpoints": "writing checkpoints",
    "shutdown": "ending the processes",
}
"""By cause: the subject of a sentence about its time."""
CHANGE_WORDS = {
    "throughput": ("faster", "slower"),
    "time": ("longer", "shorter"),
    "memory": ("more", "less"),
    "energy": ("more", "less"),
    "accuracy": ("higher", "lower"),
    "loss": ("higher", "lower"),
}
"""By metric: what a higher and what a lower value is called."""
REASONS = {
    "unit": "the two sides count different units of work",
    "work": "the runs did a different amount of work",
    "unknown work": "only one side says how much work was done",
}


def compare_lines(comparison: Comparison) -> list[str]:
    """Return the answer: verdict, cause, other metrics, what differs, what to do next."""
    lines = [
        verdict_sentence(comparison),
        cause_sentence(comparison),
        machine_sentence(comparison),
        *other_sentences(comparison),
        _settings_sentence(comparison),
        _interval_sentence(comparison),
        f"Next: {next_step(comparison)}",
    ]
    return [line for line in lines if line]


def side_names(comparison: Comparison) -> list[str]:
    """Return how both sides are called in sentences."""
    return names_of([comparison.a, comparison.b])


def names_of(sides: Sequence[Side]) -> list[str]:
    """Return a name for each side: the last part of its path, the path if that is not enough, or
    the name of its curve if one source has several.
    """
    short = [Path(side.source).name or side.source for side in sides]
    choices = (short, [side.source for side in sides], [side.curve.name for side in sides])
    numbered = [f"{name} ({number})" for number, name in enumerate(short, start=1)]
    names = next((names for names in choices if len(set(names)) == len(names)), numbered)
    return [cut(name, MAX_NAME) for name in names]


def percent_change(ratio: float) -> str:
    """Return the size of a relative change, without its sign.

    >>> percent_change(0.959), percent_change(1.5), percent_change(3.0)
    ('4.1 %', '50 %', '200 %')
    """
    return _percent(abs(ratio - 1))


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share < 0.1 else f"{100 * share:.0f} %"


def ratio_interval(ratio: Estimate) -> str:
    """Return the interval of a relative change: ``90 %: 3.0 to 5.2 %``; empty if unknown.

    >>> ratio_interval(Estimate(0.959, 0.948, 0.97))
    '90 %: 3.0 to 5.2 %'
    >>> ratio_interval(Estimate(0.99, 0.97, 1.01))
    '90 %: -3.0 to +1.0 %'
    """
    if ratio.low is None or ratio.high is None:
        return ""
    low, high = 100 * (ratio.low - 1), 100 * (ratio.high - 1)
    if low < 0 < high:
        return f"90 %: {low:+.1f} to {high:+.1f} %"
    near, far = sorted((abs(low), abs(high)))
    return f"90 %: {near:.1f} to {far:.1f} %"


def verdict_sentence(comparison: Comparison) -> str:
    """Say whether the second side is faster or slower than the first, and by how much."""
    name, other = reversed(side_names(comparison))
    row = comparison.headline
    verdict = comparison.verdict
    if verdict == "no difference":
        seen = max(r.would_see or 0.0 for r in comparison.speed_rows)
        return (
            f"No difference seen between {other} and {name} (would have seen {_percent(seen)})"
            f" {_on_devices(comparison.speed_rows)}."
        )
    if verdict == "cannot tell" and (row_of_machine := comparison.machine_row):
        return _unsure_machine(row_of_machine, name, other)
    if verdict == "cannot tell":
        return f"Cannot tell whether {name} is faster or slower than {other}: {_unsure(comparison)}"
    size = f"{percent_change(row.ratio.value)} {_change_word(row)}"
    interval = f" ({ratio_interval(row.ratio)})"
    if row.metric == "time":
        text = f"A job of {name} takes {size} than one of {other}"
    else:
        text = f"{name} is {size} than {other}"
    also = [
        r for r in comparison.rows if r.metric == row.metric and r.is_different and r is not row
    ]
    same = [r for r in also if r.is_better == row.is_better]
    opposite = [r for r in also if r.is_better != row.is_better]
    text += f" on {format_count(row.devices)}{interval}"
    if same:
        text += f", also {_by_devices(same)}"
    if opposite:
        text += f", but {_change_word(opposite[0])} {_by_devices(opposite)}"
    return f"{text}{_opposite_time(comparison)}."


def _opposite_time(comparison: Comparison) -> str:
    """Return a clause if steps became faster and the whole job slower, or the other way round."""
    head = comparison.headline
    rows = [r for r in comparison.rows if r.metric == "time" and r.is_different]
    opposite = [r for r in rows if r.is_better != head.is_better]
    if head.metric == "time" or not opposite:
        return ""
    row = opposite[-1]
    size = f"{percent_change(row.ratio.value)} {_change_word(row)}"
    text = f"; but a whole job takes {size} on {format_count(row.devices)}"
    job = [cause for cause in comparison.causes if not cause.per_step]
    cause = moved_cause(job, grew=row.is_better is False)
    return f"{text}: {change_text(cause)}" if cause else text


def _by_devices(rows: Sequence[MetricDifference]) -> str:
    parts = [f"on {row.devices:,} ({percent_change(row.ratio.value)})" for row in rows]
    return join_with_and(parts)


def _change_word(row: MetricDifference) -> str:
    return CHANGE_WORDS[row.metric][row.ratio.value < 1]


def _on_devices(rows: Sequence[MetricDifference]) -> str:
    counts = [f"{row.devices:,}" for row in rows]
    return f"on {join_with_and(counts)} {'device' if counts == ['1'] else 'devices'}"


def _unsure(comparison: Comparison) -> str:
    """Say why a comparison shows nothing, and how many repeats it needs."""
    wanted, more = f"{100 * comparison.wanted:g} %", comparison.more_repeats
    rows = [row for row in comparison.speed_rows if row.verdict == "cannot tell"]
    if all(row.would_see is None for row in rows):
        needs = f"needs {format_count(more or 1, 'more repeat')} of each side"
        if any(shows_noise := rows[0].shows_noise):
            name = side_names(comparison)[shows_noise.index(False)]
            return f"{name} has neither repeats nor intervals, so its noise is unknown; {needs}."
        return f"every number was measured once, so the noise is unknown; {needs}."
    seen = max(row.would_see for row in rows if row.would_see is not None)
    size = "twice the speed" if seen > 1 else f"a difference below {_percent(seen)}"
    text = f"{size} would not be seen {_on_devices(rows)}"
    if more is None:
        return f"{text}, and more repeats alone would not show {wanted}."
    return f"{text}; to see {wanted} it needs {format_count(more, 'more repeat')} of each side."


def _unsure_machine(row: MetricDifference, name: str, other: str) -> str:
    """Say that a difference may be the machine's."""
    assert row.machine is not None
    size = f"{percent_change(row.ratio.value)} {_change_word(row)}"
    speed = "slower" if row.machine.ratio.value > 1 else "faster"
    measured = f"a job took {size}" if row.metric == "time" else f"it was {size}"
    return (
        f"Cannot tell whether {name} is {speed} than {other}: {measured} on"
        f" {format_count(row.devices)}, but {launch_change(row.machine)} too."
        f" The machine itself may have been {speed} while {name} ran."
    )


def launch_change(shift: MachineShift) -> str:
    """Say how much longer the processes took to start."""
    ratio = shift.ratio.value
    word = "longer" if ratio > 1 else "less time"
    return f"starting the processes took {percent_change(ratio)} {word}"


def machine_sentence(comparison: Comparison) -> str:
    """Say that a part of a difference may be the machine's; empty if there is no sign of that."""
    head = comparison.headline
    if not head.is_different or not head.change or not head.change.shared:
        return ""
    shift = next(shift for shift in comparison.machine if shift.devices == head.devices)
    text = launch_change(shift)
    return f"{text[0].upper()}{text[1:]} too: as much of the difference may be the machine's."


def cause_sentence(comparison: Comparison) -> str:
    """Say which cause moved; empty if none did, or causes are not known."""
    moved, devices = comparison.moved, comparison.cause_devices
    if shift := comparison.shared_shift:
        speed = "slower" if shift.ratio.value > 1 else "faster"
        return (
            f"Everything is {speed}, not one part of a step: {launch_change(shift)} too."
            f" The machine or its software is {speed}."
        )
    is_different = comparison.headline.is_different
    if moved is None or devices is None:
        if is_different and comparison.causes:
            return "Which part of the time changed is not clear: none changed by more than noise."
        return ""
    text = f"{change_text(moved)} on {format_count(devices)}."
    return text[0].upper() + text[1:] if is_different else f"But {text}"


def change_text(change: CauseChange) -> str:
    """Say by how much the time of a cause changed: ``start-up grew by 7 s``."""
    value = change.change.value
    verb = "grew" if value > 0 else "shrank"
    to_text: Callable[[float], str] = format_seconds if change.per_step else format_duration
    before, after = to_text(change.before), to_text(change.after)
    unit = " a step" if change.per_step else ""
    subject = CAUSE_SUBJECTS.get(change.cause, change.cause)
    return f"{subject} {verb} by {to_text(abs(value))}{unit} (from {before} to {after})"


def other_sentences(comparison: Comparison) -> list[str]:
    """Return a sentence for each further metric that differs, or that was not compared."""
    shown = {comparison.headline.metric, "time" if _opposite_time(comparison) else ""}
    sentences = []
    for metric in dict.fromkeys(row.metric for row in comparison.rows if row.metric not in shown):
        rows = [row for row in comparison.rows if row.metric == metric and row.is_different]
        if rows:
            row = rows[-1]
            size = f"{percent_change(row.ratio.value)} {_change_word(row)}"
            where = f"on {format_count(row.devices)}"
            more = f", also on {_devices_list(rows[:-1])}" if rows[:-1] else ""
            sentences.append(f"{metric.capitalize()}: {size} {where}{more}.")
    for metric, reason in comparison.not_compared:
        sentences.append(f"{metric.capitalize()} is not compared: {REASONS[reason]}.")
    points = [point for side in (comparison.a, comparison.b) for point in side.curve.points]
    by_time = any(row.metric == "time" for row in comparison.rows)
    if by_time and all(point.samples is None for point in points):
        sentences.append("Times are compared as those of the same work: neither side states it.")
    return sentences


def _devices_list(rows: Sequence[MetricDifference]) -> str:
    return join_with_and([f"{row.devices:,}" for row in rows])


def condition_sentence(result: ConditionResult) -> str:
    """Say whether a condition of ``--fail-if`` is shown."""
    row, condition = result.row, result.condition
    moved = "rose" if row.ratio.value > 1 else "dropped"
    interval = ratio_interval(row.ratio)
    where = f"{row.metric} on {format_count(row.devices)}"
    text = f"{where} {moved} by {percent_change(row.ratio.value)}"
    text += f" ({interval})" if interval else "; the noise is unknown"
    text += ", which may be noise" if interval and not row.is_different else ""
    if result.outcome == "shown":
        return f"{text}: the condition {shown(condition.text)} holds"
    return f"cannot tell whether {shown(condition.text)} holds: {text}"


def refuse_doubtful_sides(sides: Sequence[Side], despite: Sequence[str] = ()) -> None:
    """Raise DoubtfulData if a doubt blocks one of the sides and its code is not in ``despite``."""
    for side in sides:
        refuse_blocking(f"compare ({side.source})", side.doubts, despite)


def _settings_sentence(comparison: Comparison) -> str:
    """Name the settings that differ."""
    differences = comparison.settings
    if not differences:
        if not comparison.a.settings or not comparison.b.settings:
            return ""
        same = "Settings and environment are the same"
        is_different = comparison.headline.is_different
        return f"{same}: what changed was not recorded." if is_different else f"{same}."
    shown = [
        f"{item.name} ({setting_text(item.before)} → {setting_text(item.after)})"
        for item in differences[:MAX_SETTINGS]
    ]
    hidden = len(differences) - len(shown)
    more = f" and {format_count(hidden, 'more setting')}" if hidden else ""
    return f"What differs: {', '.join(shown)}{more}."


def _interval_sentence(comparison: Comparison) -> str:
    """Say why a row whose interval is without 0 is called neither better nor worse."""
    rows = [row for row in comparison.rows if row.metric in ("throughput", "time")]
    bounds = [(row.ratio.low, row.ratio.high) for row in rows if not row.is_different]
    if not any(low and high and (low > 1 or high < 1) for low, high in bounds):
        return ""
    sure = f"{100 * (1 - FALSE_ALARM):g} %"
    return (
        "An interval is that of its row alone (90 %); better or worse is said only if it is"
        f" sure over all rows together ({sure})."
    )


def setting_text(value: object, limit: int = 40) -> str:
    """Return the value of a setting, cut if it is long."""
    return cut("not set" if value is None else str(value), limit)


def next_step(comparison: Comparison) -> str:
    """Return what to do next: a command, or how many repeats to add."""
    source_a, source_b = (shell_word(side.source) for side in (comparison.a, comparison.b))
    verdict = comparison.verdict
    if verdict == "cannot tell":
        return _repeat_step(comparison)
    if verdict == "no difference":
        half = max(math.ceil(50 * comparison.wanted), 1)
        return f"to see smaller ones: scalewise compare {source_a} {source_b} --difference {half}%"
    verb = "explain" if comparison.b.runs else "measure"
    return f"scalewise {verb} {source_b}"


def _repeat_step(comparison: Comparison) -> str:
    """Say how to get the repeats that are needed."""
    if comparison.machine_row:
        turns = "run --repeats 1, 2, 3 … of one, then of the other"
        return f"run both studies in turn, one repeat at a time ({turns}), then compare again"
    more = comparison.more_repeats
    if more is None:
        return "run both sides on a quiet machine, with longer runs, then compare again"
    repeats = max(min(row.repeats) for row in comparison.speed_rows) + more
    if not comparison.a.runs or not comparison.b.runs:
        return f"give each number of devices {repeats} rows of repeats, then compare again"
    return f"set repeats = {repeats} in both studies, run them again, then compare again"
