"""Choose the columns of a table that are used, and the decimal mark of each."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from scalewise.analysis.measure.table_header import Column, Role
from scalewise.analysis.measure.table_layout import VALUE_ROLES, Layout
from scalewise.analysis.measure.table_numbers import (
    Number,
    is_missing,
    mark_evidence,
    parse_count,
    parse_measured,
)
from scalewise.errors import SpecError, shown

AGREEMENT = 0.05
"""Two columns of one quantity agree if their values differ by at most this share."""
ROLE_TEXT = {
    "devices": "number of devices",
    "throughput_per_device": "throughput of one device",
    "steps_per_second": "steps per second",
    "epoch_time": "time of an epoch",
    "step_time": "time of a step",
}


@dataclass(frozen=True, slots=True)
class Selection:
    """The columns of each role, several if they are repeats, and the titles of all others."""

    columns: dict[Role, list[Column]]
    ignored: tuple[Column, ...]
    marks: dict[int, str]
    """The decimal mark by index of the column."""
    mark_rule: str | None
    """How a decimal mark was decided that no number shows: see ``_ambiguous_mark``."""

    def first(self, role: Role) -> Column | None:
        """Return the only or first column of a role; None if there is none."""
        return self.columns[role][0] if role in self.columns else None

    def mark(self, column: Column) -> str:
        """Return the decimal mark of a column."""
        return self.marks.get(column.index, ".")


def choose_columns(source: str, layout: Layout) -> Selection:
    """Return the columns to use; raise SpecError if two of one quantity disagree."""
    columns = _node_sizes(layout)
    candidates: dict[Role, list[Column]] = {}
    for column in columns:
        if column.role and layout.cells(column):
            candidates.setdefault(column.role, []).append(column)
    if "devices" in candidates:
        candidates["devices"] = _device_columns(layout, candidates["devices"])
    used = [column for group in candidates.values() for column in group]
    marks, rule = find_decimal_marks(source, layout, used)
    chosen = {role: _choose(source, layout, group, marks) for role, group in candidates.items()}
    indices = {column.index for group in chosen.values() for column in group}
    ignored = [
        column
        for column in columns
        if column.index not in indices and (column.title or layout.cells(column))
    ]
    return Selection(chosen, tuple(ignored), marks, rule)


def _node_sizes(layout: Layout) -> list[Column]:
    """Return the columns; a constant number of devices beside several numbers of nodes is that of
    one node.
    """
    roles = [column.role for column in layout.columns]
    if roles.count("devices") == 1 and "nodes" in roles and "devices_per_node" not in roles:
        devices, nodes = (layout.columns[roles.index(role)] for role in ("devices", "nodes"))
        counts = set(layout.cells(devices))
        if len(counts) == 1 and counts != {"1"} and len(set(layout.cells(nodes))) > 1:
            return [
                replace(c, role="devices_per_node") if c is devices else c for c in layout.columns
            ]
    return list(layout.columns)


def _device_columns(layout: Layout, columns: list[Column]) -> list[Column]:
    """Return the columns with the best name for devices among those that hold counts."""

    def holds_counts(column: Column) -> bool:
        try:
            parse_count(layout.cells(column)[0], ".")
        except ValueError:
            return False
        return True

    counts = [column for column in columns if holds_counts(column)] or columns
    best = min(column.preference for column in counts)
    return [column for column in counts if column.preference == best]


def _choose(
    source: str, layout: Layout, columns: list[Column], marks: dict[int, str]
) -> list[Column]:
    """Return the columns of one role: repeats, or the first of columns that agree."""
    repeats = [column for column in columns if column.repeat]
    if len(repeats) > 1:
        return repeats
    first, *others = columns
    if first.role not in VALUE_ROLES | {"devices"}:
        return [first]
    for other in others:
        if not _agree(layout, first, other, marks):
            role = ROLE_TEXT.get(str(first.role), first.role)
            raise SpecError(
                f'{source} has two columns for the {role} that disagree: "{first.title}" and '
                f'"{other.title}"',
                hint="keep one of them",
            )
    return [first]


def _agree(layout: Layout, first: Column, other: Column, marks: dict[int, str]) -> bool:
    """Say whether two columns have the same values, or for other units of work a fixed ratio."""
    ratios = []
    for line in layout.lines:
        numbers = []
        for column in (first, other):
            cell = line.cells[column.index] if column.index < len(line.cells) else ""
            try:
                numbers.append(_quantity(cell, column, marks.get(column.index, ".")))
            except ValueError:
                break
        if len(numbers) == 2 and min(n.value for n in numbers) > 0:
            a, b = numbers
            slack = AGREEMENT + a.rounding / a.value + b.rounding / b.value
            ratios.append((a.value / b.value, slack))
    if not ratios:
        return True
    other_unit = first.unit != other.unit and first.role == "throughput"
    expected = ratios[0][0] if other_unit else 1.0
    return all(abs(ratio / expected - 1) <= slack for ratio, slack in ratios)


def _quantity(cell: str, column: Column, mark: str) -> Number:
    if column.role == "devices":
        devices, _ = parse_count(cell, mark)
        return Number(float(devices or 0))
    return parse_measured(cell, column, mark)


def find_decimal_marks(
    source: str, layout: Layout, columns: Sequence[Column]
) -> tuple[dict[int, str], str | None]:
    """Return the decimal mark of each column, and the rule where no number shows it."""
    evidence = {column.index: _evidence(source, layout, column) for column in columns}
    clear = {mark for marks in evidence.values() for mark in marks if "?" not in mark}
    decided: dict[int, str] = {}
    rule = None
    for column in columns:
        own = [mark for mark in evidence[column.index] if "?" not in mark]
        if own or len(clear) == 1:
            decided[column.index] = (own or list(clear))[0]
        elif evidence[column.index]:
            decided[column.index], used_rule = _ambiguous_mark(layout, column, columns, evidence)
            rule = used_rule or rule
    return decided, rule


def _evidence(source: str, layout: Layout, column: Column) -> set[str]:
    cells = [cell for cell in layout.cells(column) if not is_missing(cell) and ":" not in cell]
    examples = {mark: cell for cell in cells for mark in mark_evidence(cell)}
    if {".", ","} <= examples.keys():
        raise SpecError(
            f'{source}: the decimal mark of "{column.title}" is unclear: '
            f"{shown(examples['.'])} has a point, {shown(examples[','])} a comma",
            hint="write all numbers of a column in the same way",
        )
    return set(examples)


def _ambiguous_mark(
    layout: Layout, column: Column, columns: Sequence[Column], evidence: dict[int, set[str]]
) -> tuple[str, str | None]:
    """Return the decimal mark of a column such as ``1,234``, and the name of the rule.

    ``closer decimals``, ``closer thousands``: in a file with semicolons, numbers without a mark
    are closer to the others if these are read so.
    ``whole devices``: in such a file, a number of devices is whole only without decimals.
    ``with plain numbers``: smaller numbers of the column have no mark, so it separates thousands.
    ``semicolons``: files with semicolons have them because the comma is the decimal mark.
    ``thousands``: else a comma separates thousands. A point is the decimal mark.
    """
    mark = "," if "?," in evidence[column.index] else "."
    other = "." if mark == "," else ","
    if layout.delimiter == "semicolons":
        unclear = [c for c in columns if f"?{mark}" in evidence[c.index]]
        decimals, thousands = (
            sum(_total_change(layout, c, reading) for c in unclear) for reading in (mark, other)
        )
        if math.isclose(decimals, thousands):
            return mark, "semicolons" if mark == "," else "decimal point"
        if decimals < thousands:
            return mark, "closer decimals"
        return other, "whole devices" if math.isinf(decimals) else "closer thousands"
    has_plain = any(re.fullmatch(r"\d{1,3}", cell) for cell in layout.cells(column))
    if mark == ".":
        return mark, None
    return other, "with plain numbers" if has_plain else "thousands"


def _total_change(layout: Layout, column: Column, mark: str) -> float:
    """Return the sum of the ratios from row to row, as logarithms: small if values are close.

    It is infinite if a number of devices is not whole with this decimal mark.
    """
    values = []
    for cell in layout.cells(column):
        try:
            values.append(_quantity(cell, column, mark).value)
        except (ValueError, OverflowError):
            if column.role == "devices" and not is_missing(cell):
                return math.inf
    return sum(abs(b - a) for a, b in pairwise(math.log(v) for v in values if v > 0))
