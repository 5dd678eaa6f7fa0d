"""Lay sections out as lines of text that fit a width: choose columns, split tables, wrap text."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from rich.cells import cell_len

from scalewise.analysis.number_format import format_count
from scalewise.report.tables import Section, Table
from scalewise.report.wrap import wrap

GAPS = (3, 2)
"""Spaces between two columns: the second number where the table would be too wide otherwise."""


class Line(NamedTuple):
    """A line of text, and its style on a terminal."""

    text: str
    style: str = ""


def lay_out(contents: Sequence[Section], width: int, *, brief: bool = False) -> list[Line]:
    """Return sections as lines; ``brief`` leaves out what only ``--all`` shows."""
    lines: list[Line] = []
    hidden_columns = hidden_tables = 0
    for alert in _all_alerts(contents):
        lines += _wrapped(alert, "bold red", width)
    for section in contents:
        lines += _wrapped(section.title, "bold", width)
        for text in section.lines:
            lines += _wrapped(text, "", width)
        for table in section.tables:
            if brief and table.only_all:
                hidden_tables += 1
                continue
            shown = _default_columns(table, width) if brief else table
            hidden_columns += len(table.header) - len(shown.header)
            lines += [Line(""), *_wrapped(table.title, "bold", width), *_table_lines(shown, width)]
        for warning in section.warnings:
            lines += _wrapped(f"! {warning}", "yellow", width)
        lines.append(Line(""))
    hidden = [format_count(hidden_columns, "more column")] if hidden_columns else []
    hidden += [format_count(hidden_tables, "more table")] if hidden_tables else []
    return [*lines, Line(f"{' and '.join(hidden)}: --all", "dim")] if hidden else lines[:-1]


def _all_alerts(contents: Sequence[Section]) -> list[str]:
    """Return the alerts of all sections, each once; titles are added if sections differ."""
    groups = {section.alerts: section for section in reversed(contents) if section.alerts}
    is_first_alone = [*groups.values()] == [contents[0]]
    lines = []
    for alerts, section in reversed(groups.items()):
        for line in alerts:
            is_named = not is_first_alone and not line.startswith(" ")
            lines.append(f"{section.title}: {line}" if is_named else line)
    return lines


def _wrapped(text: str, style: str, width: int) -> list[Line]:
    return [Line(part, style) for part in wrap(text, width)]


def _default_columns(table: Table, width: int) -> Table:
    """Return the columns that are shown without ``--all``, as far as they fit the width."""
    shown = table.shown or ("default",) * len(table.header)
    kept = [index for index, when in enumerate(shown) if when != "all"]
    dropped_first = [index for index in reversed(kept[1:]) if shown[index] == "wide"]
    widths = _widths(table)
    for index in dropped_first:
        if _total(widths, kept, GAPS[-1]) <= width:
            break
        kept.remove(index)
    return _select(table, kept)


def _select(table: Table, columns: Sequence[int]) -> Table:
    return replace(
        table,
        header=tuple(table.header[k] for k in columns),
        rows=tuple(tuple(row[k] for k in columns) for row in table.rows),
        shown=(),
    )


def _widths(table: Table) -> list[int]:
    return [max(map(cell_len, column)) for column in zip(table.header, *table.rows)]


def _total(widths: Sequence[int], columns: Sequence[int], gap: int) -> int:
    return sum(widths[k] for k in columns) + gap * (len(columns) - 1)


def _table_lines(table: Table, width: int) -> list[Line]:
    """Return the lines of a table. A wide one is split; each part repeats the first column."""
    widths = _widths(table)
    everything = range(len(widths))
    gap = next((gap for gap in GAPS if _total(widths, everything, gap) <= width), GAPS[-1])
    parts: list[list[int]] = [[0]]
    for index in everything[1:]:
        if len(parts[-1]) > 1 and _total(widths, [*parts[-1], index], gap) > width:
            parts.append([0])
        parts[-1].append(index)
    lines: list[Line] = []
    for part in parts:
        lines += [Line("")] if lines else []
        lines += _grid(_select(table, part), gap, width)
    return lines


def _grid(table: Table, gap: int, width: int) -> list[Line]:
    """Return a part of a table; cells of its last column are wrapped where they are too long."""
    *others, last = _widths(table)
    room = width - sum(others) - gap * len(others)
    wraps = last > room and len(others) > 0
    rows: list[Sequence[str]] = []
    for row in table.rows:
        first_line, *more_lines = wrap(row[-1], room) if wraps else [row[-1]]
        rows.append((*row[:-1], first_line))
        rows += [("",) * len(others) + (text,) for text in more_lines]
    widths = [max(map(cell_len, column)) for column in zip(table.header, *rows)]

    def join(cells: Sequence[str]) -> str:
        padded = [" " * (size - cell_len(cell)) + cell for size, cell in zip(widths, cells)]
        if wraps:
            padded[-1] = cells[-1]
        return (" " * gap).join(padded).rstrip()

    rule = "─" * (sum(widths) + gap * len(others))
    return [Line(join(table.header), "bold"), Line(rule), *(Line(join(row)) for row in rows)]
