"""Numbers as people write them in tables: thousands, decimal commas, units, times and spreads."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from scalewise.analysis.measure.table_header import (
    DEVICE,
    JOULES,
    MODEL,
    NODE,
    RANK,
    SECONDS,
    Column,
    parse_rate,
    split_words,
)

MAX_DEVICES = 10_000_000
"""More than any machine has."""
MIN_VALUE, MAX_VALUE = 1e-100, 1e100
"""The smallest and largest accepted values; their sums, squares and ratios do not overflow."""
MAX_LENGTH = 200
"""Characters of a cell with a number; to look for one in a longer cell would take long."""
SPACES = "\u00a0\u2007\u2009\u202f"
"""No-break and thin spaces, which may separate thousands."""
DIGITS = rf"(?:\d[\d.,'’{SPACES}]*|\.\d+)(?:[eE][+-]?\d+)?"
NUMBER = rf"(?:\d{{1,3}}(?: \d{{3}})+(?![\d])(?:[.,]\d+)?|{DIGITS})"
"""A number with its thousands separators and decimal mark, not yet told apart."""
INTERVAL = re.compile(rf"([^\[\]]*\d)\s*\[({NUMBER})(?:, +|; *| to | ?– ?)({NUMBER})\]")
"""A value with the ends of its interval, as answers of scalewise show it."""
MULTIPLES = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "bn": 1e9, "mln": 1e6}
CLOCK = re.compile(r"(?:(?:(\d+)[-d] ?)?(\d+):)?(\d+):(\d\d(?:[.,]\d+)?)")
MISSING = {
    "-", "–", "—", "--", "---", "n/a", "na", "n.a.", "none", "null", "?", "oom", "failed",
    "fail", "error", "crash", "crashed", "timeout", "tbd", "x", "n/m", "..", "...", "…",
    "#n/a", "#div/0!",
} | {"not run", "out of memory"}  # fmt: skip
"""Cells, in lower case, that stand for a value that is not known."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number of a cell, the interval that the cell gives, and half of its last digit's unit."""

    value: float
    low: float | None = None
    high: float | None = None
    rounding: float = 0.0
    unit: str | None = None
    """The unit after the number, where the cell has one."""

    def times(self, factor: float) -> "Number":
        """Return the number in another unit."""
        if factor == 1:
            return self
        low, high = (None if end is None else end * factor for end in (self.low, self.high))
        return Number(self.value * factor, low, high, self.rounding * factor, self.unit)


def mark_evidence(cell: str) -> set[str]:
    """Return the decimal marks that the numbers of a cell show; ``?,`` or ``?.`` is ambiguous.

    >>> mark_evidence("2.350,5"), mark_evidence("1,2"), mark_evidence("1,234")
    ({','}, {','}, {'?,'})
    """
    evidence = set()
    for text in re.findall(NUMBER, cell[:MAX_LENGTH]):
        digits = re.sub(r"[eE][+-]?\d+$", "", text).strip(".,")
        marks = [character for character in digits if character in ".,"]
        if not marks:
            continue
        other = "." if marks[-1] == "," else ","
        head, _, tail = digits.rpartition(marks[-1])
        if len(set(marks)) == 2:
            evidence.add(marks[-1])
        elif len(marks) > 1:
            evidence.add(other)  # Several equal marks separate thousands.
        elif len(tail) != 3 or not 1 <= len(head) <= 3 or head.startswith("0") or text != digits:
            evidence.add(marks[-1])
        else:
            evidence.add(f"?{marks[-1]}")
    return evidence


def parse_number(text: str, mark: str) -> tuple[float, float]:
    """Return a number with this decimal mark, and half the unit of its last digit.

    >>> parse_number("2.350,5", ","), parse_number("1'024", ".")
    ((2350.5, 0.05), (1024.0, 0.5))
    """
    other = "," if mark == "." else "."
    whole, point, fraction = text.partition(mark)
    groups = re.split(rf"[{re.escape(other)}'’ {SPACES}]", whole)
    fraction_digits = re.match(r"\d*", fraction)
    if len(groups) > 1 and (not 1 <= len(groups[0]) <= 3 or any(len(g) != 3 for g in groups[1:])):
        raise ValueError(text)
    if not text.isascii() and not all(c in SPACES or c in "’" or c.isascii() for c in text):
        raise ValueError(text)
    value = float("".join(groups) + (f".{fraction}" if point else ""))
    exponent = re.search(r"[eE]([+-]?\d+)$", text)
    decimals = len(fraction_digits[0]) if fraction_digits and point else 0
    power = (int(exponent[1]) if exponent else 0) - decimals
    return value, 0.5 * 10.0 ** max(-300, min(power, 300))


def is_missing(cell: str) -> bool:
    """Say whether a cell stands for an unknown value."""
    return cell.lower() in MISSING


def parse_value(cell: str, mark: str, units: Iterable[str] = ()) -> Number:
    """Return the number of a cell: ``240 ± 3``, ``240 [236, 245]``, ``1.2k``, ``95 %``, ``2.1x``,
    ``464 (1.9x)``. ``units`` may follow the number. Raise ValueError if the cell holds something
    else.
    """
    if bounds := INTERVAL.fullmatch(cell):
        number = parse_value(bounds[1], mark, units)
        low, high = (parse_number(text, mark)[0] for text in (bounds[2], bounds[3]))
        if low <= number.value <= high:
            return replace(number, low=low, high=high)
    text = re.sub(r"\s*[\(\[]\s*(?!±|\+)[^\)\]]*[\)\]]$", "", cell).strip()  # 464 (1.9x)
    text = re.sub(r"[\(\[]\s*((?:±|\+/-|\+-)[^\)\]]*)[\)\]]", r" \1", text)
    text = re.sub(r"^[~≈]\s*", "", text)
    center, _, spread = re.sub(r"\s*(?:±|\+/-|\+-)\s*", "±", text).partition("±")
    allowed = set(units)
    if not spread:
        return _number_with_unit(center, mark, allowed)
    half = _number_with_unit(spread, mark, allowed | {"%"})
    number = _number_with_unit(center, mark, allowed)
    if number.unit is None and half.unit != "%":  # 240 ± 3 s
        number = Number(number.value, rounding=number.rounding, unit=half.unit)
    width = number.value * half.value / 100 if half.unit == "%" != number.unit else half.value
    low = max(number.value - width, number.value * 1e-3)  # A positive quantity.
    return Number(number.value, low, number.value + width, number.rounding, number.unit)


def _number_with_unit(text: str, mark: str, units: set[str]) -> Number:
    multiples = "|".join(MULTIPLES)
    parts = re.fullmatch(rf"[x×+]?\s*({NUMBER})\s*(?:({multiples})(?![a-zA-Z/]))?\s*(.*)", text)
    if not parts:
        raise ValueError(text)
    unit = parts[3].strip()
    if re.match(r"[x×]", text) and not unit:
        unit = "x"
    unit = "x" if unit == "×" else unit
    if unit and unit not in units and unit.lower() not in units:
        raise ValueError(text)
    value, rounding = parse_number(parts[1], mark)
    factor = MULTIPLES.get(parts[2] or "", 1.0)
    return Number(value, rounding=rounding, unit=unit or None).times(factor)


def parse_time(cell: str, mark: str, factor: float, *, hours_first: bool = False) -> Number:
    """Return the seconds of ``1:05:00``, ``1h 5m``, ``3.2 min`` or a number times ``factor``.

    >>> parse_time("1h 5m", ".", 1.0).value, parse_time("2:30", ".", 1.0).value
    (3900.0, 150.0)
    """
    text = re.sub(r"\s*\([^\)]*\)$", "", cell).strip()
    if clock := CLOCK.fullmatch(text):
        days, hours, minutes, seconds = (
            float((g or "0").replace(",", ".")) for g in clock.groups()
        )
        if hours_first and clock[2] is None:
            return Number(3600 * minutes + 60 * seconds, rounding=30.0)
        total = 86400 * days + 3600 * hours + 60 * minutes + seconds
        return Number(total, rounding=0.5 if seconds == int(seconds) else 0.05)
    unit_names = "|".join(sorted(SECONDS, key=len, reverse=True))
    term = re.compile(rf"({NUMBER})\s*({unit_names})(?=\b|\d)\.?", re.IGNORECASE)
    terms = [(parse_number(n, mark), SECONDS[u.lower()]) for n, u in term.findall(text)]
    if len(terms) > 1 and not term.sub("", text).strip(" ,:"):
        (_, rounding), size = terms[-1]
        return Number(sum(n * unit for (n, _), unit in terms), rounding=rounding * size)
    number = parse_value(cell, mark, SECONDS)
    return number.times(SECONDS[number.unit.lower()] if number.unit else factor)


def parse_count(cell: str, mark: str) -> tuple[int | None, int | None]:
    """Return the devices and the nodes of ``8``, ``2x8``, ``8 GPUs``, ``4xV100`` or ``2 nodes``.

    >>> parse_count("2x8", "."), parse_count("8 x A100", "."), parse_count("1,024", ".")
    ((16, 2), (8, None), (1024, None))
    """
    if len(cell) > MAX_LENGTH:
        raise ValueError(cell)
    text = re.sub(r"[×*]", "x", cell.lower()).strip()
    nodes = re.search(rf"\b(\d+)[ -]?{NODE}\b", text)
    counted = re.fullmatch(rf"(\d+) ?{NODE}[ ,x(/]*(\d+) ?{MODEL}{DEVICE}?\)?", text)
    if counted and re.search(r"x|/ ?node", text) and "(" not in text:
        return _whole(counted[1]) * _whole(counted[2]), _whole(counted[1])
    grid = re.fullmatch(rf"(\d+) ?(?:{NODE} )?x ?(\d+)(?: ?{MODEL}{DEVICE})?(?: per node)?", text)
    if grid:
        return _whole(grid[1]) * _whole(grid[2]), _whole(grid[1])
    if re.fullmatch(rf"\d+ ?{NODE}", text):
        return None, _whole(text.split()[0].rstrip("abcdefghijklmnopqrstuvwxyz"))
    if counted:
        return _whole(counted[2]), _whole(counted[1])
    noun = rf"(?:{MODEL}(?:{DEVICE}|{RANK})|x? ?(?:nvidia |amd )?[a-z]{{1,5}} ?\d{{2,4}}[a-z]*)?"
    parts = re.fullmatch(rf"({NUMBER}) ?x? ?{noun}(?: ?\([^)]*\))?(?:[, /]+\d+ ?{NODE})?", text)
    if not parts or (not cell.isascii() and not parts[1].isascii()):
        raise ValueError(cell)
    return _whole(parts[1], mark), _whole(nodes[1]) if nodes else None


def _whole(text: str, mark: str = ".") -> int:
    value = parse_number(text, mark)[0]
    if not math.isfinite(value) or value != int(value) or not 1 <= value <= MAX_DEVICES:
        raise ValueError(text)
    return int(value)


def parse_measured(cell: str, column: Column, mark: str) -> Number:
    """Return the number of a cell by what its column holds, in s, J or units of work per second."""
    if len(cell) > MAX_LENGTH:
        raise ValueError(cell)
    if column.role in ("time", "epoch_time", "step_time"):
        hours_first = bool(re.fullmatch(r"h+:m+", column.unit or ""))
        return parse_time(cell, mark, column.factor, hours_first=hours_first)
    if column.role == "energy":
        number = parse_value(cell, mark, JOULES)
        return number.times(JOULES[number.unit.lower()] if number.unit else column.factor)
    if column.role in ("throughput", "throughput_per_device", "steps_per_second"):
        return _parse_rate_cell(cell, column.factor, mark)
    if column.role == "speedup":
        return parse_value(cell, mark, {"x", "times"})
    return parse_value(cell, mark, {"%"} if column.role == "efficiency" else ())


def _parse_rate_cell(cell: str, factor: float, mark: str) -> Number:
    """Return the rate of ``2350 img/s`` or of a number times ``factor``; its unit is the work's."""
    parts = re.match(rf"[~≈]?\s*({NUMBER}(?: ?[kKMG](?= |$))?)\s*([a-zA-Z][^(±]*)(?=$|\(|±)", cell)
    rate = parse_rate(split_words(parts[2])) if parts else None
    if not parts or rate is None:
        return parse_value(cell, mark).times(factor)
    number = parse_value(cell.replace(parts[2].strip(), ""), mark).times(rate[0])
    return replace(number, unit=rate[1])
