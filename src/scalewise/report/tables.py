"""Tables and sections of a report, and functions that format cells; a dash stands for None."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar

from scalewise.analysis.explain import Breakdown
from scalewise.analysis.measure import Estimate, Point
from scalewise.analysis.number_format import format_count
from scalewise.report.text.doubts import note_texts

NONE = "–"
"""Shown for an unknown value."""
NUMBER_STARTS = ("", "+", "-", "−", NONE, "±", ".", "~", "<", ">", "≤", "≥")
"""How the cells of a column of numbers begin, if not with a digit."""
MAX_CELL_CHARACTERS = 300
"""Longer cells are cut in documents: they would not fit on a page."""
Shown = Literal["default", "wide", "all"]
"""When a column is shown: by default, by default where the width allows it, with ``--all``."""
Row = TypeVar("Row")
ColumnOf = tuple[str, Callable[[Row], str]] | tuple[str, Callable[[Row], str], Shown]
"""A column of a table: its heading, the function from a row to its cell, when it is shown."""


@dataclass(frozen=True, slots=True)
class Table:
    """Text in rows and columns. Files show all of it; on screen, some needs ``--all``."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    shown: tuple[Shown, ...] = ()
    """When each column is shown; empty if all of them are shown by default."""
    only_all: bool = False
    """Whether the whole table is shown only with ``--all``."""


@dataclass(frozen=True, slots=True)
class Section:
    """A titled part of a report: lines of text, tables and warnings."""

    title: str
    lines: tuple[str, ...]
    tables: tuple[Table, ...] = ()
    warnings: tuple[str, ...] = ()
    alerts: tuple[str, ...] = ()
    """Lines about doubts, to be shown before everything else."""


def is_text_column(cells: Iterable[str]) -> bool:
    """Return whether a column has cells that begin unlike numbers: it is aligned at the left.

    >>> is_text_column(["12 s", "–", "~3", "+4 %"]), is_text_column(["12 s", "none"])
    (False, True)
    """
    return not all(cell[:1].isdigit() or cell[:1] in NUMBER_STARTS for cell in cells)


DevicesRow = TypeVar("DevicesRow", bound=Point | Breakdown)
"""A type of rows that have ``devices`` and ``warnings``."""


def make_table(
    title: str,
    rows: Iterable[Row],
    columns: Iterable[ColumnOf[Row]],
    *,
    hide_unknown: bool = False,
    only_all: bool = False,
) -> Table:
    """Return a table from (heading, function from row to cell, when it is shown).

    ``hide_unknown`` omits columns without any value.
    """
    rows = list(rows)
    header: list[str] = []
    cells: list[list[str]] = []
    shown: list[Shown] = []
    for heading, cell, *when in columns:
        texts = [cell(row) for row in rows]
        if not hide_unknown or any(text != NONE for text in texts):
            header.append(heading)
            cells.append(texts)
            shown.append(when[0] if when else "default")
    return Table(title, tuple(header), tuple(zip(*cells)), tuple(shown), only_all)


def columns_by_key(
    keys: Iterable[str],
    cell: Callable[[str, Any], str],
    shown: Callable[[str], Shown] = lambda key: "default",
) -> list[ColumnOf[Any]]:
    """Return a column for each key, with the key as heading; ``cell`` takes the key and a row."""
    return [(key, partial(cell, key), shown(key)) for key in keys]


def table_by_devices(
    rows: Iterable[DevicesRow],
    title: str,
    columns: Iterable[ColumnOf[DevicesRow]],
    *,
    only_all: bool = False,
) -> Table:
    """Return a table whose first column is the number of devices; ``!`` marks warnings."""
    devices: ColumnOf[DevicesRow] = (
        "devices",
        lambda row: f"{row.devices}{' !' if row.warnings else ''}",
    )
    return make_table(title, rows, [devices, *columns], hide_unknown=True, only_all=only_all)


def warnings_of(points: Sequence[DevicesRow]) -> list[str]:
    """Return the notes about all rows, each with its number of devices."""
    return [
        f"{format_count(point.devices, 'device')}: {text}"
        for point in points
        for text in note_texts(point.warnings)
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


def interval(estimate: Estimate | None) -> str:
    """Return the interval of an estimate.

    >>> interval(Estimate(2.0, 1.0, 4.0)), interval(Estimate(2.0, None, None))
    ('1.000 to 4.000', '–')
    """
    if estimate is None or estimate.low is None or estimate.high is None:
        return NONE
    return f"{number(estimate.low)} to {number(estimate.high)}"


def shows_interval(tables: Iterable[Table]) -> bool:
    """Return whether a table shows the half-width of an interval by default."""
    return any("±" in table.header for table in tables if not table.only_all)


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
    # One run of equal steps does not show by how much another run would differ. The efficiency of
    # the baseline is exactly 1.
    if estimate.count == 1 and estimate.low == estimate.high != 1.0:
        return None
    return (estimate.high - estimate.low) / 2
