"""Where a table stands in a text: its delimiter, its header, its rows, and lines around it."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from scalewise.analysis.measure.table_header import (
    SECONDS,
    Column,
    match_column,
    parse_rate,
    split_words,
)
from scalewise.analysis.measure.table_lines import DELIMITERS, Line, decode_table, split_lines
from scalewise.analysis.measure.table_numbers import parse_count
from scalewise.errors import SpecError, cut, shown
from scalewise.validate import suggest_name

COLUMNS = ("devices", "throughput", "time", "samples", "energy_kwh")
HEADER_HINT = (
    "the first line is devices,throughput[,time] or devices,time[,samples]; energy_kwh may follow"
)
DEVICE_HINT = "name it devices, GPUs, workers or ranks; or nodes and GPUs per node"
VALUE_HINT = "name it throughput, images/s, time (s), epoch time, speedup or efficiency"
SIZE_ROLES = {"devices", "nodes"}
VALUE_ROLES = {"throughput", "throughput_per_device", "steps_per_second", "time", "epoch_time",
               "step_time", "speedup", "efficiency"}  # fmt: skip
MAX_TITLE_LINES = 20
"""A header is looked for in this many lines."""
MAX_LINES = 12_000
"""A longer text is no table of device counts; each line is split in seven ways."""
MAX_LINE_LENGTH = 20_000
"""Characters of a line: a thousand columns, or a cell with a long remark."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A table's header and the lines below it."""

    delimiter: str
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    title_lines: int = 0
    transposed: bool = False

    def where(self, source: str, line: Line) -> str:
        """Return a line's position for a message."""
        return f"{source}, {'column' if self.transposed else 'line'} {line.number}"

    def name(self, column: Column) -> str:
        """Return the title of a column; its position if it has none."""
        return column.title or f"{'row' if self.transposed else 'column'} {column.index + 1}"

    def cells(self, column: Column) -> list[str]:
        """Return the cells of a column that are not empty."""
        index = column.index
        cells = [line.cells[index] for line in self.lines if index < len(line.cells)]
        return [cell for cell in cells if cell]


def find_layout(source: str, text: str) -> Layout:
    """Return the table of a text; raise SpecError if none is found."""
    _refuse_long_text(source, text)
    by_delimiter = {mark: split_lines(source, text, mark) for mark in DELIMITERS}
    if all(line.comment for line in by_delimiter["commas"]) and not any(
        _header_at(mark, lines, comments=True) for mark, lines in by_delimiter.items()
    ):
        raise SpecError(f"{source} is empty", hint=HEADER_HINT)
    for comments in (False, True):
        found = [
            layout
            for mark, lines in by_delimiter.items()
            if (layout := _header_at(mark, lines, comments=comments))
        ]
        if found:
            return _checked_titles(source, max(found, key=_fitting_lines))
    for mark, lines in by_delimiter.items():
        if layout := _header_at(mark, _transposed(lines), comments=False):
            return replace(layout, transposed=True)
    raise _explain_missing_header(source, by_delimiter)


def _refuse_long_text(source: str, text: str) -> None:
    lines = text.splitlines()
    if len(lines) > MAX_LINES:
        raise SpecError(
            f"{source} has {len(lines):,} lines, more than a table of {MAX_LINES:,}",
            hint="keep a row for each run; for a log: scalewise import",
        )
    longest = max(range(len(lines)), key=lambda index: len(lines[index]), default=0)
    if lines and len(lines[longest]) > MAX_LINE_LENGTH:
        raise SpecError(
            f"{source}, line {longest + 1}: {len(lines[longest]):,} characters, more than "
            f"{MAX_LINE_LENGTH:,}",
            hint="leave out what is not measured",
        )


def is_table(data: bytes) -> bool:
    """Say whether a file has a header that names devices and a value."""
    try:
        find_layout("", decode_table(data))
    except ValueError:
        return False
    return True


def _fitting_lines(layout: Layout) -> int:
    width = len(layout.columns)
    return sum(len(line.cells) == width for line in layout.lines)


def _header_at(delimiter: str, lines: Sequence[Line], *, comments: bool) -> Layout | None:
    """Return the layout below the first line that names devices and a value."""
    for index, line in enumerate(lines[:MAX_TITLE_LINES]):
        if line.comment != comments or len(line.cells) < 2:
            continue
        below = [other for other in lines[index + 1 :] if not other.comment]
        columns, below = _merge_units(_match_columns(line, below), below)
        if not is_header(columns):
            continue
        if delimiter == "single spaces" and any(re.match(r"\d", cell) for cell in line.cells):
            continue  # A sentence with numbers.
        fits = any(len(other.cells) == len(line.cells) for other in below)
        if not fits and (comments or "spaces" in delimiter):
            continue
        repeated = [other for other in below if other.cells != line.cells]
        titles = sum(not other.comment for other in lines[:index])
        return Layout(
            delimiter=delimiter, columns=columns, lines=tuple(repeated), title_lines=titles
        )
    return None


def is_header(columns: Iterable[Column]) -> bool:
    """Say whether columns hold a number of devices and a value."""
    roles = {column.role for column in columns}
    return bool(roles & SIZE_ROLES and roles & VALUE_ROLES)


def _match_columns(line: Line, below: Sequence[Line]) -> tuple[Column, ...]:
    """Return the columns of a header; without a title of devices, their cells may show them."""
    columns = [match_column(index, title) for index, title in enumerate(line.cells)]
    roles = {column.role for column in columns}
    has_numbers = any(re.match(r"\d[\d.,]*$", title) for title in line.cells)
    if roles & VALUE_ROLES and not roles & SIZE_ROLES and not has_numbers:
        for column in columns:
            cells = [cell for row in below for cell in row.cells[column.index : column.index + 1]]
            filled = list(filter(None, cells))
            if column.role is None and filled and all(map(_names_devices, filled)):
                columns[column.index] = replace(column, role="devices")
                break
    return tuple(columns)


def _names_devices(cell: str) -> bool:
    """Say whether a cell such as ``8 GPUs`` or ``2x8`` is a number of devices without a title."""
    try:
        parse_count(cell, ".")
    except ValueError:
        return False
    return bool(re.search(r"[a-wyz]{2}|\d ?[x×*] ?\w", cell.lower()))


def _merge_units(
    columns: tuple[Column, ...], below: list[Line]
) -> tuple[tuple[Column, ...], list[Line]]:
    """Return columns with the units of a second header line, and the lines below that line."""
    if not below or any(re.search(r"\d", cell) for cell in below[0].cells):
        return columns, below
    units = below[0].cells
    if len(units) != len(columns):  # Spaces do not show which column a unit belongs to.
        is_remark = len(units) > 1
        return columns, below[1:] if is_remark else below
    texts = [unit.strip("()[] ").lower() for unit in units]
    rates = [parse_rate(split_words(text)) for text in texts]
    if not any(text in SECONDS or rate or text == "%" for text, rate in zip(texts, rates)):
        return columns, below
    merged = []
    for column, unit in zip(columns, texts):
        with_unit = match_column(column.index, f"{column.title} ({unit})") if unit else column
        merged.append(with_unit if with_unit.role else column)
    return tuple(merged), below[1:]


def _transposed(lines: Sequence[Line]) -> list[Line]:
    """Return the columns of the lines as lines."""
    rows = [line for line in lines if not line.comment]
    width = max((len(line.cells) for line in rows), default=0)
    rows = [line for line in rows if len(line.cells) == width]
    if width < 3:
        return []
    return [Line(number, tuple(cells)) for number, cells in enumerate(
        zip(*(line.cells for line in rows)), start=1)]  # fmt: skip


def _checked_titles(source: str, layout: Layout) -> Layout:
    titles = [column.title.lower() for column in layout.columns if column.role]
    for title in titles:
        if titles.count(title) > 1:
            raise SpecError(f"{source} has the column {shown(title)} twice", hint=HEADER_HINT)
    return layout


def _explain_missing_header(source: str, by_delimiter: dict[str, list[Line]]) -> SpecError:
    """Return the error for a text without a table: what is missing in its likeliest header."""
    candidates = []
    for delimiter, lines in by_delimiter.items():
        rows = [line for line in lines if not line.comment]
        for line in rows[:MAX_TITLE_LINES]:
            columns = [match_column(index, title) for index, title in enumerate(line.cells)]
            known = sum(column.role in SIZE_ROLES | VALUE_ROLES for column in columns)
            if known and delimiter != "single spaces" and len(rows) > 1:
                candidates.append((len(columns) > 1, known, columns))
    if not candidates:
        problem = f"{source} is neither a study's folder nor a table"
        return SpecError(problem, hint=HEADER_HINT)
    _, _, columns = max(candidates, key=lambda candidate: candidate[:2])
    roles = {column.role for column in columns}
    titles = [column.title for column in columns if column.title]
    for column in columns:
        hint = suggest_name(column.title.lower(), COLUMNS)
        if column.role is None and hint:
            return SpecError(f"{source} has an unknown column {shown(column.title)}", hint=hint)
    problem = f"{source} has only the columns {cut(', '.join(titles))}"
    if not roles & SIZE_ROLES:
        return SpecError(f"{problem}: none is the number of devices", hint=DEVICE_HINT)
    return SpecError(f"{problem}: none is a throughput, time or speedup", hint=VALUE_HINT)
