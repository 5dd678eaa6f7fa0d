"""Tables and sections of a report, and functions that format cells; a dash stands for None."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from scalewise.analysis.explain import Breakdown
from scalewise.analysis.measure import Estimate, Point
from scalewise.analysis.number_format import format_count
from scalewise.report.text.doubts import warning_text

NONE = "–"
"""Shown for an unknown value."""


@dataclass(frozen=True, slots=True)
class Table:
    """Text in rows and columns."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Section:
    """A titled part of a report: lines of text, tables and warnings."""

    title: str
    lines: tuple[str, ...]
    tables: tuple[Table, ...] = ()
    warnings: tuple[str, ...] = ()


Row = TypeVar("Row")
DevicesRow = TypeVar("DevicesRow", bound=Point | Breakdown)
"""A type of rows that have ``devices`` and ``warnings``."""


def make_table(
    title: str,
    rows: Iterable[Row],
    columns: Iterable[tuple[str, Callable[[Row], str]]],
    *,
    hide_unknown: bool = False,
) -> Table:
    """Return a table from (heading, function from row to cell); can omit all-unknown columns."""
    rows = list(rows)
    filled = [(heading, [cell(row) for row in rows]) for heading, cell in columns]
    if hide_unknown:
        filled = [column for column in filled if any(text != NONE for text in column[1])]
    header = tuple(heading for heading, _ in filled)
    return Table(title, header, tuple(zip(*(cells for _, cells in filled))))


def columns_by_key(
    keys: Iterable[str], cell: Callable[[str, Any], str]
) -> list[tuple[str, Callable[[Any], str]]]:
    """Return a column for each key, with the key as heading; ``cell`` takes the key and a row."""
    return [(key, partial(cell, key)) for key in keys]


def table_by_devices(
    rows: Iterable[DevicesRow],
    title: str,
    columns: Iterable[tuple[str, Callable[[DevicesRow], str]]],
) -> Table:
    """Return a table whose first column is the number of devices; ``!`` marks warnings."""
    devices = ("devices", lambda row: f"{row.devices}{' !' if row.warnings else ''}")
    return make_table(title, rows, [devices, *columns], hide_unknown=True)


def warnings_of(points: Sequence[DevicesRow]) -> list[str]:
    """Return the warnings of all rows, each with its number of devices."""
    return [
        f"{format_count(point.devices, 'device')}: {warning_text(warning)}"
        for point in points
        for warning in point.warnings
    ]


def integer(count: int | None) -> str:
    """Return a whole number with thousands separators."""
    return NONE if count is None else f"{count:,}"


def number(value: float | None) -> str:
    """Return a number with about four significant digits.

    >>> number(12345.6), number(0.01234), number(16.66)
    ('12,346', '0.01234', '16.66')
    """
    if value is None or not math.isfinite(value):
        return NONE
    if value == 0:
        return "0"
    exponent = math.floor(math.log10(abs(value)))
    if not -6 < exponent < 12:
        return f"{value:.1e}"
    return f"{value:,.{max(0, 3 - exponent)}f}"


def bound(estimate: Estimate | None, name: str) -> str:
    """Return the ``low`` or ``high`` end of an estimate's interval."""
    return number(getattr(estimate, name) if estimate else None)


def mebibytes(estimate: Estimate | None) -> str:
    """Return bytes as MiB."""
    return value(estimate and estimate * (1 / 2**20))


def milliseconds(seconds: float | None) -> str:
    """Return seconds as milliseconds, rounded to the 0.1 µs resolution of the records."""
    return number(None if seconds is None else round(1000 * seconds, 4))


def value(estimate: Estimate | None) -> str:
    """Return the value of an estimate, without its interval."""
    return number(estimate.value if estimate else None)


def percent(share: Estimate | float | None) -> str:
    """Return a share in percent.

    >>> percent(0.9667)
    '96.7 %'
    """
    fraction = share.value if isinstance(share, Estimate) else share
    if fraction is None or not math.isfinite(100 * fraction):
        return NONE
    return f"{100 * fraction:.1f} %".replace("-0.0 %", "0.0 %")


def relative_error(estimate: Estimate | None) -> str:
    """Return half the width of the interval as a percentage of the value."""
    half = _half_width(estimate)
    return NONE if half is None or estimate is None else f"{100 * half / estimate.value:.1f} %"


def point_error(estimate: Estimate | None) -> str:
    """Return half the width of a share's interval in percentage points."""
    half = _half_width(estimate)
    return NONE if half is None else f"{100 * half:.1f}"


def _half_width(estimate: Estimate | None) -> float | None:
    if estimate is None or estimate.low is None or estimate.high is None:
        return None
    return (estimate.high - estimate.low) / 2
