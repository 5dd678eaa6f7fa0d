"""Check the values of a rank's lines and of an outcome: types, and numbers that are finite."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scalewise.errors import RecordError
from scalewise.record.check_types import MAX_COUNT, is_count, is_number, wrong_key
from scalewise.record.line_sums import REPEAT
from scalewise.record.schema import RankEnd, RankNotes, Sketch, SketchSamples

INFINITE = ("loss", "losses", "validation", "facts", "noise", "compression", "certificate")
"""Where a training has diverged, these may have values that are not finite."""


def check_outcome(path: Path, outcome: Mapping[str, Any]) -> None:
    """Refuse an ``outcome.json`` whose values cannot be true."""
    for key, fits in (
        ("attempt", lambda value: is_count(value) and value > 0),
        ("ranks", lambda value: is_count(value) and value > 0),
        ("started", is_number),
        ("ended", is_number),
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
    elif "ended" in line and (not is_number(line["ended"]) or wrong_key(RankEnd, line)):
        problem = "its end is no time"
    elif "steps" not in line and (name := _wrong_note(line)):
        problem = f"its {name} is no such value"
    else:
        return
    raise RecordError(f"{path} is damaged: line {number}: {problem}", hint=REPEAT)


def _wrong_note(line: Mapping[str, Any]) -> str:
    """Return the key of the first value that is not of its type; empty if there is none."""
    for key, kind in (("sketch", Sketch), ("sketch_samples", SketchSamples)):
        if key in line:
            is_table = isinstance(line[key], dict)
            if not is_table or wrong_key(kind, line[key], all_keys=True, finite=False):
                return key
    name = wrong_key(RankNotes, line)
    if name in INFINITE:
        name = wrong_key(RankNotes, line, finite=False)
    return name


def _has_steps(line: Mapping[str, Any]) -> bool:
    """Return whether a line has the bounds and the totals of its steps."""
    steps = line["steps"]
    if not (isinstance(steps, list) and len(steps) == 2 and all(map(is_count, steps))):
        return False
    totals = [line[key] for key in ("seconds", "samples") if key in line]
    phases = line.get("phases", {})
    if not isinstance(phases, Mapping):
        return False
    known = (value for value in phases.values() if value is not None)
    return steps[0] <= steps[1] and all(map(is_number, totals)) and all(map(is_number, known))


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
    return all(is_number(value) or (value is None and or_null) for value in column)


def _is_span(line: Mapping[str, Any]) -> bool:
    counts = (line.get(key, 0) for key in ("epoch", "samples"))
    return (
        isinstance(line["span"], str)
        and all(is_number(line.get(key)) for key in ("start", "end"))
        and all(map(is_number, counts))
    )


def _is_outline(outline: Any) -> bool:
    return isinstance(outline, dict) and all(
        is_number(outline.get(key, 0)) for key in ("steps", "seen")
    )
