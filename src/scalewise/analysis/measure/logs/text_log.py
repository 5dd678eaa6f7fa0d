"""Read plain-text logs line by line, by the table of line formats."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from scalewise.analysis.measure.logs.device_count import (
    BATCH_LINES,
    DEVICE_LINES,
    MAX_LINE,
    device_counts,
    line_bounds,
)
from scalewise.analysis.measure.logs.line_formats import LINE_FORMATS, UNITS, LineFormat
from scalewise.analysis.measure.logs.log import Log, Observation, epoch_number
from scalewise.analysis.measure.table_header import SECONDS
from scalewise.analysis.measure.table_numbers import parse_number, parse_time

MAX_ATTEMPTS = 5000
"""Lines on which a format is tried: so many are enough for a mean, and a huge log stays quick."""
MAX_LAST_ATTEMPTS = 2000
"""The same for a format whose last line counts."""
MIN_WHOLE_SECONDS = 3.0
"""Below this, a time that is shown in whole seconds is taken from the time of a step."""
EPOCH = re.compile(r"(?<![\w/])epoch['\"]?[\s:=\[#]{0,4}(\d+)", re.IGNORECASE)
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b.")
"""Colours and movements of a terminal's cursor."""
PRINTER = re.compile(
    r"^\s*(\[\d+,\d+\]<std\w+>|\[default\d+\]|\[?rank ?\d+\]?|\d+(?=: ))", re.IGNORECASE
)
"""The label that mpirun, torchrun, srun -l and programs put before the lines of a rank."""
NOT_TRAINING = re.compile(
    r"^\W*(?:\[[^\]]*\]\W*)*(?:test|val|valid|validation|eval|evaluation|inference)\s*[:\[(]"
    r"|(?:^|\W)(?:test|val|valid|validat\w*|eval\w*|inference)"
    r"(?:[\s_./|]\w+)?['\"]?\s*[:=\[(]?\s*(?:\[.*)?$",
    re.IGNORECASE,
)
"""The text before a number that belongs to a validation: how it begins, or how it ends."""
TOTAL = re.compile(
    r"(?:\b|_)(?:total|aggregated?|global)[ _](?:[^\W\d_]+(?:/| per |_per_)s|throughput|speed|ips)",
    re.IGNORECASE,
)
"""The label of a rate of all devices: ``Total img/sec on 4 GPU(s)``, ``train.total_ips``."""
TOTAL_AFTER = re.compile(rf"\s*\(?{TOTAL.pattern}\w*\)?\s*(?:[,;|]|$)", re.IGNORECASE)
"""The same label behind its number: ``1004 img/s (total throughput)``."""
OTHER_VALUE = re.compile(
    r"^\w*['\"]?\s*[:=]?\s*['\"]?\d|[,;|]|\d ?[^\W\d_]+(?:/| per )s", re.IGNORECASE
)
"""What shows that a label before a number is that of another number."""


@dataclass(slots=True)
class Candidate:
    """A format whose needle occurs in a log: its place in the table, and on how many lines it was
    tried.
    """

    rank: int
    format: LineFormat
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class Line:
    """A line, its number, its small letters, and the epoch that was last mentioned."""

    number: int
    text: str
    lower: str
    epoch: int | None


def read_text_log(text: str) -> Log:
    """Return the numbers of a text, without terminal codes, in which ``LINE_FORMATS`` occur."""
    log = Log(format="text log")
    lower = text.lower()
    formats = [Candidate(rank, f) for rank, f in enumerate(LINE_FORMATS) if f.needle in lower]
    series = [candidate for candidate in formats if not candidate.format.whole_run]
    needles = tuple(dict.fromkeys(candidate.format.needle for candidate in series))
    has_epochs = "epoch" in lower
    epoch: int | None = None
    _note_facts(log, text, lower)
    for number, line in _lines(text):
        low = line.lower()
        if has_epochs and "epoch" in low and (mention := EPOCH.search(line)):
            epoch = epoch_number(mention[1])
        if any(needle in low for needle in needles):
            _read_line(log, Line(number, line, low, epoch), series)
    for candidate in formats:
        if candidate.format.whole_run:
            _read_last(log, text, lower, candidate)
    _keep_one_bar_per_epoch(log)
    return log


def clean_terminal(text: str) -> str:
    """Return text without colours, backspaces and NULs."""
    if "\x1b" in text:
        text = ESCAPES.sub("", text)
    return text.replace("\b", "").replace("\0", "").replace("\r\n", "\n")


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with their numbers; the states of a progress bar have the number of its line."""
    for number, line in enumerate(text.split("\n"), start=1):
        if "\r" not in line:
            yield number, line[:MAX_LINE]
            continue
        for state in line.split("\r"):
            yield number, state[:MAX_LINE]


def _read_line(log: Log, line: Line, formats: list[Candidate]) -> None:
    """Add what a line says: of each quantity, what the first format finds that fits."""
    done: set[str] = set()
    for candidate in formats:
        line_format = candidate.format
        if line_format.quantity in done or line_format.needle not in line.lower:
            continue
        if candidate.attempts < MAX_ATTEMPTS:
            candidate.attempts += 1
            if _add_match(log, line, candidate):
                done.add(line_format.quantity)


def _note_facts(log: Log, text: str, lower: str) -> None:
    """Add the numbers of devices, and the global batch if there is one."""
    if any(word in lower for word in DEVICE_LINES.words):
        log.device_counts = device_counts(text)
    if any(word in lower for word in BATCH_LINES.words):
        batches = {count for _, count in BATCH_LINES.find(text)}
        log.global_batch = batches.pop() if len(batches) == 1 else None


def _read_last(log: Log, text: str, lower: str, candidate: Candidate) -> None:
    """Add the last good line of a format that is printed once, for the complete run."""
    if len(lower) != len(text):  # A letter whose small form is longer.
        text = lower
    position = len(lower)
    for _ in range(MAX_LAST_ATTEMPTS):
        position = lower.rfind(candidate.format.needle, 0, position)
        if position < 0:
            return
        start, end = line_bounds(lower, position)
        line = text[start:end]
        if _find(candidate.format, line):
            known = len(log.observations)
            number = lower.count("\n", 0, start) + 1
            _add_match(log, Line(number, line, line.lower(), None), candidate)
            if len(log.observations) > known:
                return


def _add_match(log: Log, line: Line, candidate: Candidate) -> bool:
    """Add the number that a format finds in a line; return whether it fits the line."""
    line_format = candidate.format
    match = _find(line_format, line.text)
    if match is None:
        return False
    groups = {name: text for name, text in match.groupdict().items() if text is not None}
    if NOT_TRAINING.search(line.text[: _value_start(match)]):
        return True
    value, rounding = _value(groups)
    low, high = _interval(value, groups.get("spread"))
    printer = PRINTER.match(line.text)
    log.add(
        Observation(
            quantity=line_format.quantity,
            value=value,
            source=line_format.name,
            line=line.number,
            rank=candidate.rank,
            epoch=epoch_number(groups.get("epoch", line.epoch)),
            per_device=line_format.per_device or "device" in groups,
            whole_run=line_format.whole_run,
            is_total=_is_total(line.text, match),
            unit=UNITS.get(groups.get("unit", "").lower()) or line_format.unit,
            low=low,
            high=high,
            rounding=rounding,
            steps=int(groups["steps"][:9]) if "steps" in groups else None,
            batch=int(groups["batch"][:9]) if "batch" in groups else None,
            printer=printer[1].strip() if printer else None,
        )
    )
    return True


def _find(line_format: LineFormat, line: str) -> re.Match[str] | None:
    """Return where a format fits; a rate in GB/s or it/s is none."""
    for match in line_format.regex.finditer(line):
        unit = match.groupdict().get("unit")
        if unit is None or unit.lower() in UNITS:
            return match
    return None


def _interval(value: float, spread: str | None) -> tuple[float | None, float | None]:
    half = _number(spread)[0] if spread else 0.0
    return (value - half, value + half) if 0 < half < value else (None, None)


def _value_start(match: re.Match[str]) -> int:
    names = ("rate", "seconds", "ms", "duration")
    return min(match.start(n) for n in names if match.groupdict().get(n) is not None)


def _is_total(line: str, match: re.Match[str]) -> bool:
    """Return whether the label of the number that was found says that it is of all devices."""
    before = line[: _value_start(match)]
    labels = list(TOTAL.finditer(before))
    if labels and not OTHER_VALUE.search(before[labels[-1].end() :]):
        return True
    return TOTAL_AFTER.match(line, match.end()) is not None


def _value(groups: Mapping[str, str]) -> tuple[float, float]:
    """Return the number of a line in its quantity's unit, and half of its last digit's unit."""
    if "rate" in groups:
        return _number(groups["rate"])
    if "ms" in groups:
        value, rounding = _number(groups["ms"])
        return value / 1000, rounding / 1000
    if "duration" in groups:
        return _duration(groups["duration"])
    seconds, rounding = _number(groups["seconds"])
    if "step" in groups and seconds < MIN_WHOLE_SECONDS:
        unit, steps = SECONDS[groups["step_unit"].lower()], int(groups["steps"][:9])
        return float(groups["step"]) * unit * steps, 0.5 * unit * steps
    return seconds, rounding


def _number(text: str) -> tuple[float, float]:
    """Return a number and half of its last digit's unit; nan if it is none.

    >>> _number("1,234"), _number("12,5"), _number("nan")[0]
    ((1234.0, 0.5), (12.5, 0.05), nan)
    """
    text = text.strip().rstrip(",").lstrip("+")
    is_thousands = re.fullmatch(r"\d{1,3}(?:,\d{3})+(?:\.\d*)?(?:e.*)?", text, re.IGNORECASE)
    mark = "," if "," in text and "." not in text and not is_thousands else "."
    try:
        return parse_number(text, mark)
    except (ValueError, OverflowError):
        return float("nan"), 0.0


def _duration(text: str) -> tuple[float, float]:
    """Return the seconds of ``12.3 s``, ``2m3.4s``, ``0:12:34`` or ``1 day, 0:12:34``."""
    days, _, clock = text.rpartition("day")
    cell = clock.lstrip("s, ") if days else text
    try:
        number = parse_time(cell.strip(), ".", 1.0)
    except (ValueError, OverflowError):
        return float("nan"), 0.0
    return number.value + 86400 * float(days or 0), number.rounding


def _keep_one_bar_per_epoch(log: Log) -> None:
    """Drop bars of validations: those with another number of steps than the first one; and of
    several states of one finished bar, keep the last, which includes what was added at its end.
    """
    steps: dict[str, int] = {}
    last: dict[tuple[str, int | None], int] = {}
    bars = [o.steps is not None and o.rank >= FIRST_BAR for o in log.observations]
    keep = [True] * len(bars)
    for index, observation in enumerate(log.observations):
        if not bars[index] or observation.steps is None:
            continue
        key = observation.source, observation.epoch
        if observation.steps != steps.setdefault(observation.source, observation.steps):
            keep[index] = False
            continue
        if observation.epoch is not None:
            if key in last:
                keep[last[key]] = False
            last[key] = index
    log.observations = [o for o, kept in zip(log.observations, keep) if kept]


FIRST_BAR = next(
    rank for rank, line_format in enumerate(LINE_FORMATS) if "SAME" in line_format.pattern
)
