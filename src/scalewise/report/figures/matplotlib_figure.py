"""Draws figures with Matplotlib: files for papers, one or two columns wide, and for slides."""

import io
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, TwoSlopeNorm
from matplotlib.figure import Figure as Canvas
from matplotlib.figure import SubFigure

from scalewise.record.write import write_bytes
from scalewise.report.escape import escape_plot
from scalewise.report.figures import Bars, Figure, HeatMap, Line
from scalewise.report.figures.axis_range import label_margins
from scalewise.report.figures.matplotlib_axes import format_axes
from scalewise.report.figures.matplotlib_labels import place_labels
from scalewise.report.figures.matplotlib_legend import draw_legend, legend_height
from scalewise.report.figures.matplotlib_style import MAX_CURVES, STYLE, bar_style, line_style
from scalewise.report.figures.palette import (
    HEAT_HIGH,
    HEAT_LOW,
    HEAT_MIDDLE,
    MARK_COLOR,
    OTHER_COLOR,
    line_color,
)

Columns = Literal[1, 2, "slide", "slide beside text"]
WIDTHS: dict[Columns, float] = {1: 3.4, 2: 7.0, "slide": 4.6, "slide beside text": 3.9}
"""Inches, by the number of columns of a paper that a figure is wide. On a slide it is enlarged."""
HEIGHTS: dict[Columns, float] = {1: 2.3, 2: 2.9, "slide": 2.25, "slide beside text": 2.5}
"""Inches of the axes with their labels; the legend comes in addition."""
PNG_DPI = 300
METADATA: dict[str, dict[str, None]] = {
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
    "png": {},
}
"""Without dates, equal figures give equal files."""


def draw(figure: Figure, columns: Columns = 1, *, title: bool = False) -> Canvas:
    """Return a figure drawn for a paper, one or two columns wide."""
    width = WIDTHS[columns]
    with _style():
        height = HEIGHTS[columns] + legend_height(figure, width) + (0.25 if title else 0)
        canvas = Canvas(figsize=(width, height), layout="constrained")
        axes = _draw(canvas, figure, width, title=title)
        # Labels are placed where the layout has put the axes; there they stay in every format.
        canvas.draw_without_rendering()
        canvas.set_layout_engine("none")
        place_labels(axes, figure)
    return canvas


def draw_all(figures: Sequence[Figure]) -> Canvas:
    """Return all figures in one picture, two per row, each with its title."""
    columns = min(2, len(figures))
    rows = -(-len(figures) // columns)
    width = 4.6
    with _style():
        heights = [2.9 + legend_height(figure, width) for figure in figures]
        row_heights = [max(heights[columns * row : columns * (row + 1)]) for row in range(rows)]
        canvas = Canvas(figsize=(width * columns, sum(row_heights)), layout="constrained")
        grid = canvas.subfigures(rows, columns, squeeze=False, height_ratios=row_heights)
        drawn = [
            (_draw(part, figure, width, title=True), figure)
            for part, figure in zip(grid.flat, figures)
        ]
        canvas.draw_without_rendering()
        canvas.set_layout_engine("none")
        for axes, figure in drawn:
            place_labels(axes, figure)
    return canvas


def render(canvas: Canvas, suffix: str) -> bytes:
    """Return a drawn figure as the contents of a file with this suffix."""
    kind = suffix[1:].lower()
    out = io.BytesIO()
    with _style():
        canvas.savefig(out, format=kind, dpi=PNG_DPI, metadata=METADATA[kind])
    return out.getvalue()


def as_svg(figure: Figure, columns: Columns = 2) -> str:
    """Return a figure as the text of an SVG element, to be put into a page."""
    text = render(draw(figure, columns), ".svg").decode()
    return text[text.index("<svg") :]


def write(canvas: Canvas, path: Path) -> Path:
    """Write a drawn figure in the format that the file name's suffix names."""
    write_bytes(path, render(canvas, path.suffix))
    return path


@contextmanager
def _style() -> Iterator[None]:
    with rc_context(STYLE), warnings.catch_warnings(), np.errstate(all="ignore"):
        # A character that the font does not have is drawn as an empty box.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        warnings.filterwarnings("ignore", message="constrained_layout not applied")
        yield


def _draw(canvas: Canvas | SubFigure, figure: Figure, width: float, *, title: bool) -> Axes:
    axes: Axes = canvas.subplots()
    right = axes.twinx() if figure.right else None
    for line in figure.lines:
        if line.color < MAX_CURVES:
            _draw_line(right if right and line.on_right else axes, line)
    if figure.bars:
        _draw_bars(axes, figure.bars)
    if figure.heat:
        _draw_heat(canvas, axes, figure.heat)
    for mark in figure.marks:
        color = MARK_COLOR if mark.color is None else line_color(mark.color)
        axes.plot(mark.x, mark.y, marker="o", markersize=9, markerfacecolor="none",
                  markeredgecolor=color, markeredgewidth=1.1, linestyle="none",
                  zorder=5)  # fmt: skip
    if margins := label_margins(figure):
        axes.margins(*margins)
    format_axes(axes, right, figure, width)
    if title:
        text = escape_plot(figure.title)
        axes.set_title(text, loc="left", fontweight="bold", wrap=True)
    draw_legend(canvas, figure, width)
    return axes


def _draw_line(axes: Axes, line: Line) -> None:
    style = line_style(line)
    drawn = [index for index, y in enumerate(line.y) if math.isfinite(y)]
    x, y = [line.x[index] for index in drawn], [line.y[index] for index in drawn]
    if not drawn:
        return
    if line.low and line.role == "predicted":
        low = [_or(line.low[index], line.y[index]) for index in drawn]
        high = [_or(line.high[index], line.y[index]) for index in drawn]
        axes.fill_between(x, low, high, color=style["color"], alpha=0.18, linewidth=0)
        # The first point of a predicted line is a measured one.
        axes.plot(x, y, markevery=range(1, len(x)), **style)
    elif line.low:
        down = [line.y[index] - _or(line.low[index], line.y[index]) for index in drawn]
        up = [_or(line.high[index], line.y[index]) - line.y[index] for index in drawn]
        yerr = np.clip([down, up], 0, None)
        axes.errorbar(x, y, yerr=yerr, capsize=2, elinewidth=0.8, capthick=0.8, **style)
    else:
        axes.plot(x, y, **style)


def _or(bound: float | None, value: float) -> float:
    return value if bound is None or not math.isfinite(bound) else bound


def _draw_bars(axes: Axes, bars: Sequence[Bars]) -> None:
    bottom = np.zeros(len(bars[0].heights))
    for part in bars:
        axes.bar(range(len(bottom)), part.heights, bottom=bottom, width=0.72, **bar_style(part))
        bottom += part.heights


def _draw_heat(canvas: Canvas | SubFigure, axes: Axes, heat: HeatMap) -> None:
    values = np.array(
        [[math.nan if value is None else value for value in row] for row in heat.values], float
    )
    known = values[np.isfinite(values)]
    colors, norm = colormaps["cividis"], None
    if heat.middle is not None and known.size:
        reach = max(float(np.abs(known - heat.middle).max()), heat.least_reach, 1e-9)
        norm = TwoSlopeNorm(heat.middle, heat.middle - reach, heat.middle + reach)
        colors = LinearSegmentedColormap.from_list("lag", [HEAT_LOW, HEAT_MIDDLE, HEAT_HIGH])
    image = axes.imshow(
        values,
        aspect="auto",
        interpolation="nearest",
        cmap=colors.with_extremes(bad=OTHER_COLOR),
        norm=norm,
    )
    axes.grid(visible=False)
    bar = canvas.colorbar(image, ax=axes, pad=0.02)
    bar.set_label(escape_plot(heat.label))
    bar.outline.set_linewidth(0.6)
