"""Axes of figures that Matplotlib draws: scales, ticks that do not overlap, labels."""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import groupby, pairwise
from textwrap import fill
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.axis import Axis as MatplotlibAxis
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextToPath
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    NullLocator,
)

from scalewise.report.escape import escape_plot, shorten
from scalewise.report.figures import Axis, Figure, Line
from scalewise.report.figures.axis_range import axis_range, is_narrow, log_ticks

TICK_POINTS = 8
TICK_SPACE = 0.07
"""Inches between the labels of ticks."""
MAX_LABEL = 70
LABEL_LINE = 30
"""Characters of a line of a vertical label."""
NEAR_WHOLE = 0.6
"""If the largest share is above this, the axis shows 100 %."""
MAX_GROUP_NAME = 44
MAX_GROUPS = 26
"""The names of more curves are not listed below their bars."""


def format_axes(axes: Axes, right: Axes | None, figure: Figure, width: float) -> None:
    """Set scales, ticks and labels of all axes; ``width`` is that of the figure in inches."""
    inner = width - (1.5 if right or figure.heat else 0.8)
    _format_horizontal(axes, figure, inner)
    _format_values(axes, figure.y, [line for line in figure.lines if not line.on_right])
    if figure.heat:
        _show_categories(axes.yaxis, figure.y.categories, 1.6, along="height")
    if figure.bars:
        top = max(map(sum, zip(*(part.heights for part in figure.bars))), default=0.0)
        axes.set_ylim(0, _top(top, figure.y))
        axes.grid(visible=False, axis="x")
    if right and figure.right:
        _format_values(right, figure.right, [line for line in figure.lines if line.on_right])
        right.grid(visible=False)
        right.spines["right"].set_visible(True)


def _format_values(axes: Axes, axis: Axis, lines: Sequence[Line]) -> None:
    """Format a vertical axis: logarithmic, or linear from 0."""
    axes.set_ylabel(fill(plot_label(axis.label, MAX_LABEL), LABEL_LINE))
    values = [value for line in lines for value in line.y if math.isfinite(value)]
    highs = [high for line in lines for high in line.high if high and math.isfinite(high)]
    if axis.log and values and min(values) > 0:
        _log_scale(axes, "y", axis, values)
    elif values:
        axes.set_ylim(0, _top(max([*values, *highs]), axis))
    if axis.percent:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.4g} %"))
    elif not axis.log and not axis.categories:
        axes.yaxis.set_major_formatter(FuncFormatter(_tick_text))


def _top(largest: float, axis: Axis) -> float | None:
    """Return the end of an axis from 0: shares end at 100 % if they come near it."""
    top = 1.06 * largest
    return (max(top, 1.03) if axis.percent and largest > NEAR_WHOLE else top) or None


def _format_horizontal(axes: Axes, figure: Figure, inches: float) -> None:
    axis = figure.x
    label = plot_label(axis.label, MAX_LABEL)
    if axis.counts:
        counts = sorted({x for line in figure.lines for x in line.x})
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(FixedLocator(_spread(counts, inches)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    elif axis.categories:
        _show_categories(axes.xaxis, axis.categories, inches, groups=axis.groups)
        if axis.groups:
            label = _show_groups(axes, axis, inches, label)
    elif axis.log:
        _log_scale(axes, "x", axis, [x for line in figure.lines for x in line.x], inches)
    axes.set_xlabel(label)


def _log_scale(
    axes: Axes,
    which: Literal["x", "y"],
    shown: Axis,
    values: Sequence[float],
    inches: float | None = None,
) -> None:
    """Make an axis logarithmic, with plain numbers at ticks that are neither few nor many; on an
    axis of so many ``inches``, only those that have room.
    """
    axis: MatplotlibAxis = axes.xaxis if which == "x" else axes.yaxis
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    if is_narrow(values):
        margin = (axes.margins() or (0.0, 0.0))["xy".index(which)]
        ends = (10.0**end for end in axis_range(shown, values, margin))
        (axes.set_xlim if which == "x" else axes.set_ylim)(*ends)
    low, high = axis.get_view_interval()
    ticks = [tick for tick in log_ticks(low, high) if low <= tick <= high]
    axis.set_major_locator(FixedLocator(_spread(ticks, inches, _tick_text) if inches else ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(_tick_text))


def _tick_text(value: float, position: object = None) -> str:
    """Return a tick's number.

    >>> _tick_text(20000.0), _tick_text(0.05), _tick_text(3e7)
    ('20,000', '0.05', '3e+07')
    """
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.4g}"


def _spread(
    counts: Sequence[float], inches: float, text: Callable[[float], str] = "{:,.0f}".format
) -> list[float]:
    """Return the ticks of a logarithmic axis whose labels do not overlap; the first and the last
    stay.
    """
    if len(counts) < 3 or counts[0] <= 0:
        return list(counts)
    scale = inches / max(math.log2(counts[-1] / counts[0]), 1e-9)

    def half(count: float) -> float:
        return (text_inches(text(count)) + TICK_SPACE) / 2

    def apart(first: float, second: float) -> bool:
        return math.log2(second / first) * scale >= half(first) + half(second)

    kept = [counts[0]]
    for count in counts[1:-1]:
        if apart(kept[-1], count) and apart(count, counts[-1]):
            kept.append(count)
    return [*kept, counts[-1]]


def _show_categories(
    axis: MatplotlibAxis,
    categories: Sequence[str],
    inches: float,
    along: Literal["width", "height"] = "width",
    groups: Sequence[str] = (),
) -> None:
    """Show the names of positions, only every n-th of each group if they would overlap."""
    if not categories:
        return
    names = [plot_label(name, 24) for name in categories]
    each = 0.15 if along == "height" else max(map(text_inches, names)) + TICK_SPACE
    step = max(1, math.ceil(len(names) * each / inches))
    starts = [k for k in range(len(groups)) if not k or groups[k] != groups[k - 1]] or [0]
    positions = [
        position
        for start, end in pairwise([*starts, len(names)])
        for position in range(start, end, step)
    ]
    axis.set_ticks(positions, [names[position] for position in positions])


def _show_groups(axes: Axes, axis: Axis, inches: float, label: str) -> str:
    """Write the curves' names below their bars; return the axis label, which has the names if they
    are too long for their place.
    """
    runs = [(name, len(list(members))) for name, members in groupby(axis.groups)]
    names = [plot_label(name, MAX_GROUP_NAME) for name, _ in runs]
    fits = all(
        text_inches(name) <= size / len(axis.groups) * inches
        for name, (_, size) in zip(names, runs)
    )
    letters = [chr(ord("A") + index) if index < MAX_GROUPS else "" for index in range(len(runs))]
    start = 0
    for name, letter, (_, size) in zip(names, letters, runs):
        axes.annotate(name if fits else letter, (start + size / 2 - 0.5, 0),
                      xycoords=axes.get_xaxis_transform(), xytext=(0, -16),
                      textcoords="offset points", ha="center", va="top",
                      annotation_clip=False)  # fmt: skip
        start += size
        if start < len(axis.groups):
            axes.axvline(start - 0.5, color="0.7", linewidth=0.6)
    if fits:
        return f"\n{label}"
    key = [f"{letter}: {name}" for letter, name in zip(letters, names)]
    more = [f"and {len(key) - MAX_GROUPS} more"] if len(key) > MAX_GROUPS else []
    return "\n".join(["", label, *key[:MAX_GROUPS], *more])


@lru_cache(maxsize=4096)
def text_inches(text: str, points: float = TICK_POINTS) -> float:
    """Return the width of a text in the default font."""
    width, _, _ = TextToPath().get_text_width_height_descent(
        text, FontProperties(size=points), ismath=False
    )
    return float(width) / 72


def plot_label(text: str, length: int) -> str:
    """Return a label of at most this many characters, which Matplotlib draws literally."""
    return shorten(escape_plot(text), length)
