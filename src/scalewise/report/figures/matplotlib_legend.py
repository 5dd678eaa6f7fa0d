"""Legends of figures that Matplotlib draws: below the axes, where they cover nothing."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

from matplotlib.artist import Artist
from matplotlib.figure import Figure as Canvas
from matplotlib.figure import SubFigure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from scalewise.report.figures import Figure, Line
from scalewise.report.figures.matplotlib_axes import MAX_GROUPS, plot_label, text_inches
from scalewise.report.figures.matplotlib_style import (
    LEGEND_POINTS,
    MAX_CURVES,
    bar_style,
    line_style,
)

MAX_ENTRIES = 16
"""Of more entries, the rest are counted."""
MAX_NAME = {True: 90, False: 40}
"""Characters of a name in a wide figure, and in one that is a column wide."""
SIGN_INCHES = 0.4
"""Width of a sign of the legend with the space around it."""
ROW_INCHES = 0.16
MIN_VISIBLE_SHARE = 0.003
"""Smaller parts of the highest bar cannot be seen, and have no entry."""
NEUTRAL_COLOR = "#444444"
"""Color of entries that hold for all curves."""
ROLE_TEXTS = {"predicted": "predicted (90 % interval)"}

Entry = tuple[Artist, str]


def legend_height(figure: Figure, width: float) -> float:
    """Return the inches that the legend takes below the axes."""
    rows, _ = _layout(figure, width)
    key_lines = min(len(set(figure.x.groups)), MAX_GROUPS) + 1 if figure.x.groups else 0
    return ROW_INCHES * (rows + key_lines)


def draw_legend(canvas: Canvas | SubFigure, figure: Figure, width: float) -> None:
    """Draw the legend below the axes; none for a single line or part."""
    entries = list(_entries(figure, width))
    if entries:
        _, columns = _layout(figure, width)
        canvas.legend(
            [sign for sign, _ in entries],
            [text for _, text in entries],
            loc="outside lower center",
            ncols=columns,
            frameon=False,
            handlelength=1.9,
            handletextpad=0.5,
            columnspacing=1.0,
            borderaxespad=0.2,
            labelspacing=0.35,
        )


def _layout(figure: Figure, width: float) -> tuple[int, int]:
    """Return the numbers of rows and columns."""
    texts = [text for _, text in _entries(figure, width)]
    if not texts:
        return 0, 1
    widths = [text_inches(text, LEGEND_POINTS) for text in texts]
    for columns in range(len(texts), 0, -1):
        rows, longer = divmod(len(texts), columns)  # So many columns have one row more.
        ends = list(accumulate(rows + (column < longer) for column in range(columns)))
        widest = [max(widths[start:end]) for start, end in pairwise([0, *ends])]
        if sum(SIGN_INCHES + inches for inches in widest) <= width:
            return ends[0], columns
    return len(texts), 1


def _entries(figure: Figure, width: float) -> Iterator[Entry]:
    if figure.bars:
        yield from _bar_entries(figure)
        return
    length = MAX_NAME[width > 5]
    curves = {line.color: line for line in reversed(figure.lines) if line.role != "ideal"}
    kinds = list({(line.role, line.what): line for line in figure.lines}.values())
    if len(curves) > 1:
        shown = [curves[color] for color in sorted(curves)][:MAX_ENTRIES]
        for line in shown:
            yield _sign(replace(line, role="measured")), plot_label(line.curve or line.name, length)
        if len(curves) > len(shown):
            text = f"and {len(curves) - len(shown)} more"
            if len(curves) > MAX_CURVES:
                text += f" ({len(curves) - MAX_CURVES} not drawn)"
            yield Line2D([], [], linestyle="none"), text
    if len(kinds) > 1:
        for line in kinds:
            color = NEUTRAL_COLOR if len(curves) > 1 and line.role != "ideal" else None
            text = ROLE_TEXTS.get(line.role, line.what or line.name)
            yield _sign(line, color=color), plot_label(text, length)


def _sign(line: Line, color: str | None = None) -> Line2D:
    """Return the sign of a kind of line; with a neutral ``color`` if it holds for all curves."""
    style: dict[str, Any] = line_style(line)
    if color:
        style["color"] = color
        style["marker"] = style["marker"] if style.get("linestyle") == "none" else ""
    return Line2D([], [], **style)


def _bar_entries(figure: Figure) -> Iterator[Entry]:
    if len(figure.bars) == 1:
        return
    highest = max(map(sum, zip(*(part.heights for part in figure.bars))))
    for part in figure.bars:
        if max(part.heights) >= MIN_VISIBLE_SHARE * highest:
            yield Patch(**bar_style(part)), plot_label(part.name, MAX_NAME[False])
