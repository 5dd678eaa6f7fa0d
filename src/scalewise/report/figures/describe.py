"""A figure in words, for readers who cannot see it."""

from scalewise.analysis.number_format import (
    format_count,
    format_number,
    format_percent,
    join_with_and,
)
from scalewise.report.figures import Axis, Figure, Line

MAX_VALUES = 12
"""A line with more points, or bars at more positions, are described by their ends."""
MAX_PARTS = 3
"""Only the largest parts of a bar are named."""


def describe(figure: Figure) -> str:
    """Return what a figure shows and its values, in a few sentences."""
    sentences = [f"{figure.title}: {figure.y.label} by {figure.x.label}."]
    lines = [line for line in figure.lines if line.role != "ideal"]
    sentences += [_line_sentence(figure, line) for line in lines]
    if figure.bars:
        sentences.append(_bars_sentence(figure))
    sentences += [f"Marked: {mark.text} ({_point(figure.x, mark.x)})." for mark in figure.marks]
    return " ".join(sentences)


def _line_sentence(figure: Figure, line: Line) -> str:
    axis = figure.right if line.on_right and figure.right else figure.y
    values = [f"{_value(axis, y)} {_point(figure.x, x)}" for x, y in zip(line.x, line.y)]
    if line.labels:
        values = [f"{label}: {value}" for label, value in zip(line.labels, values)]
    return f"{line.name}: {', '.join(_ends(values))}."


def _bars_sentence(figure: Figure) -> str:
    texts = []
    for position, category in enumerate(figure.x.categories):
        parts = sorted(figure.bars, key=lambda part: -part.heights[position])
        named = [
            f"{part.name} {_value(figure.y, part.heights[position])}"
            for part in parts[:MAX_PARTS]
            if part.heights[position] > 0
        ]
        group = f"{figure.x.groups[position]}, " if figure.x.groups else ""
        total = _value(figure.y, sum(part.heights[position] for part in parts))
        listed = f" ({join_with_and(named)})" if len(figure.bars) > 1 and named else ""
        texts.append(f"{group}on {format_count(int(category))}: {total}{listed}")
    return f"{'; '.join(_ends(texts))}."


def _ends(texts: list[str]) -> list[str]:
    return texts if len(texts) <= MAX_VALUES else [texts[0], "…", texts[-1]]


def _point(axis: Axis, x: float) -> str:
    if axis.counts:
        return f"on {format_count(int(x))}"
    if axis.categories:
        return f"in {axis.categories[int(x)]}"
    return f"at {format_number(x)} {axis.label.partition(',')[0]}"


def _value(axis: Axis, value: float) -> str:
    return format_percent(value) if axis.percent else format_number(value)
