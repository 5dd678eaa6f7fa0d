"""Draw fewer points: a page of ten thousand points or bars would be slow, and show no more."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from scalewise.report.figures import Figure, Line

MAX_LINES = 60
MAX_POINTS = 300
"""Points of a line."""
MAX_BARS = 120
Item = TypeVar("Item")


def thinned(figure: Figure) -> tuple[Figure, str]:
    """Return the figure with as many points, bars and lines as a page shows, and the sentence that
    says what was left out; empty if nothing was.
    """
    parts = []
    lines = figure.lines
    if len(lines) > MAX_LINES:
        lines = lines[:MAX_LINES]
        parts.append(f"the first {MAX_LINES} of {len(figure.lines):,} lines")
    if longest := max((len(line.x) for line in lines if len(line.x) > MAX_POINTS), default=0):
        lines = tuple(map(_thinned_line, lines))
        parts.append(f"{MAX_POINTS} of up to {longest:,} points of a line")
    bars, x = figure.bars, figure.x
    count = len(x.categories)
    if bars and count > MAX_BARS:
        kept = _positions(count, MAX_BARS)
        bars = tuple(replace(part, heights=_pick(part.heights, kept)) for part in bars)
        x = replace(x, categories=_pick(x.categories, kept), groups=_pick(x.groups, kept))
        parts.append(f"{MAX_BARS} of {count:,} bars")
    note = f"Drawn: {', '.join(parts)}. The downloads have all numbers." if parts else ""
    return replace(figure, lines=lines, bars=bars, x=x), note


def _thinned_line(line: Line) -> Line:
    if len(line.x) <= MAX_POINTS:
        return line
    kept = _positions(len(line.x), MAX_POINTS)
    return replace(
        line,
        x=_pick(line.x, kept),
        y=_pick(line.y, kept),
        low=_pick(line.low, kept),
        high=_pick(line.high, kept),
        labels=_pick(line.labels, kept),
    )


def _positions(count: int, limit: int) -> list[int]:
    """Return ``limit`` positions of ``count``, evenly spaced, with both ends."""
    return [round(index * (count - 1) / (limit - 1)) for index in range(limit)]


def _pick(values: Sequence[Item], kept: Sequence[int]) -> tuple[Item, ...]:
    return tuple(values[index] for index in kept) if values else ()
