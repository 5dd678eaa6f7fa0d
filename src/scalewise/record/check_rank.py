"""Check the values of a rank's lines and of an outcome: types, and numbers that are finite."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scalewise.errors import RecordError
from scalewise.record.line_sums import REPEAT

MAX_COUNT = 2**53
"""Whole numbers up to here are exact in every reader of JSON."""


def check_outcome(path: Path, outcome: Mapping[str, Any]) -> None:
    """Refuse an ``outcome.json`` whose values cannot be true."""
    for key, fits in (
        ("attempt", lambda value: _is_count(value) and value > 0),
        ("ranks", lambda value: _is_count(value) and value > 0),
        ("started", _is_number),
        ("ended", _is_number),
    ):
        if key in outcome and not fits(outcome[key]):
            raise RecordError(f"{path} is damaged: its {key!r} is no such value", hint=REPEAT)


def check_line(path: Path, number: int, line: Mapping[str, Any]) -> None:
    """Refuse a line of a rank that has a value of another type, or a number that is not finite."""
    if "each" in line and not _has_columns(line):
        problem = "its single steps are no columns of numbers"
    elif "steps" in line and not _has_steps(line):
        problem = "its steps are no such numbers"
    elif "span" in line and not _is_span(line):
        problem = "its span has no such times"
    elif "outline" in line and not _is_outline(line["outline"]):
        problem = "its outline has no such numbers"
    elif "ended" in line and not _is_number(line["ended"]):
        problem = "its end is no time"
    else:
        return
    raise RecordError(f"{path} is damaged: line {number}: {problem}", hint=REPEAT)


def _is_number(value: Any) -> bool:
    """Return whether a value is a finite number."""
    kind = type(value)
    return (kind is float and math.isfinite(value)) or (kind is int and abs(value) < MAX_COUNT)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < MAX_COUNT


def _has_steps(line: Mapping[str, Any]) -> bool:
    """Return whether a line has the bounds and the totals of its steps."""
    steps = line["steps"]
    if not (isinstance(steps, list) and len(steps) == 2 and all(map(_is_count, steps))):
        return False
    totals = [line[key] for key in ("seconds", "samples") if key in line]
    phases = line.get("phases", {})
    if not isinstance(phases, Mapping):
        return False
    known = (value for value in phases.values() if value is not None)
    return steps[0] <= steps[1] and all(map(_is_number, totals)) and all(map(_is_number, known))


def _has_columns(line: Mapping[str, Any]) -> bool:
    """Return whether every column has a number, or null, for each step that is kept."""
    index, columns = line.get("index"), line["each"]
    if not (isinstance(index, list) and isinstance(columns, dict)):
        return False
    if set(map(type, index)) - {int} or (index and not 0 <= min(index) <= max(index) < MAX_COUNT):
        return False
    for name, column in columns.items():
        if column is None:
            continue
        if not isinstance(column, list) or len(column) != len(index):
            return False
        is_known = name in ("seconds", "samples")
        if not _are_numbers(column, or_null=not is_known):
            return False
    return True


def _are_numbers(column: list[Any], *, or_null: bool) -> bool:
    """Return whether all values are finite numbers, or null if they may be; quick for most."""
    kinds = set(map(type, column))
    if kinds == {float}:
        return math.isfinite(sum(column))
    if kinds == {int}:
        return bool(max(map(abs, column)) < MAX_COUNT)
    return all(_is_number(value) or (value is None and or_null) for value in column)


def _is_span(line: Mapping[str, Any]) -> bool:
    counts = (line.get(key, 0) for key in ("epoch", "samples"))
    return (
        isinstance(line["span"], str)
        and all(_is_number(line.get(key)) for key in ("start", "end"))
        and all(map(_is_number, counts))
    )


def _is_outline(outline: Any) -> bool:
    return isinstance(outline, dict) and all(
        _is_number(outline.get(key, 0)) for key in ("steps", "seen")
    )
