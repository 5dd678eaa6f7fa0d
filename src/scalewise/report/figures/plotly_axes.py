"""Axes and layout of figures that Plotly draws, and how texts and numbers are written there."""

import math
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from typing import Any

from scalewise.report.escape import printable, shorten
from scalewise.report.figures import Axis, Figure
from scalewise.report.figures.axis_range import axis_range, is_narrow, label_margins, log_ticks
from scalewise.report.tables import number, percent

MAX_NAME_LENGTH = 60
"""Longer names are cut in plots; the tables have them whole."""
TOP_MARGIN = 12
"""Pixels above the axes."""
MAX_TICKS = 12
"""So many numbers of devices are named on an axis; of more, the powers of two, or if there are
fewer than two of these, as many as fit.
"""


def plotly_layout(figure: Figure) -> dict[str, Any]:
    """Return the layout of a figure for Plotly."""
    horizontal, vertical = known_values(figure)
    x_margin, y_margin = label_margins(figure) or (None, None)
    layout: dict[str, Any] = {
        "xaxis": _axis(figure.x, horizontal, x_margin),
        "yaxis": _axis(figure.y, vertical, y_margin),
        "barmode": "stack",
        "bargap": 0.25,
        "dragmode": False,
        "showlegend": False,
        "hovermode": "closest",
        "hoverdistance": 40,
        "hoverlabel": {
            "bgcolor": "var(--tip)",
            "bordercolor": "var(--tip)",
            "font": {"color": "var(--tip-text)", "size": 13},
            "align": "left",
        },
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": "var(--soft)"},
        "margin": {"l": 8, "r": 16, "t": TOP_MARGIN, "b": 8},
    }
    if figure.heat:
        layout["yaxis"] = _named_positions(figure.y) | {"autorange": "reversed"}
        layout["xaxis"] = _named_positions(figure.x)
    elif figure.lines and figure.x.categories:
        ends = {"range": [-0.3, len(figure.x.categories) - 0.7]}
        layout["xaxis"] = _named_positions(figure.x) | ends
    if figure.right:
        right = _axis(figure.right, [])
        layout["yaxis2"] = right | {"overlaying": "y", "side": "right", "showgrid": False}
    return layout


def _axis(axis: Axis, values: Sequence[float], margin: float | None = None) -> dict[str, Any]:
    """Return an axis of these values, with a margin on both sides if it is given."""
    result: dict[str, Any] = {
        "title": {"text": plotly_text(axis.label), "standoff": 10},
        "automargin": True,
        "gridcolor": "var(--grid)",
        "linecolor": "var(--axis)",
        "zeroline": False,
        "ticks": "outside",
        "tickcolor": "var(--axis)",
        "ticklen": 4,
    }
    if axis.groups:
        return result | {"type": "multicategory", "showgrid": False}
    if axis.categories:
        return result | {"type": "category", "showgrid": False}
    result["tickformat"] = "~%" if axis.percent else ",~r"
    is_narrow_log = axis.log and not axis.counts and bool(values) and is_narrow(values)
    if values and (margin is not None or is_narrow_log):
        result["range"] = [*map(rounded, axis_range(axis, values, margin or 0.05))]
    if not axis.log:
        return result | {"rangemode": "tozero"}
    if not values:
        return result | {"type": "log"}
    ends = [10.0**end for end in axis_range(axis, values, margin or 0.0)]
    ticks = _count_ticks(sorted({*values})) if axis.counts else log_ticks(*ends)
    texts = [value_text(tick, axis) if axis.percent else _tick_text(tick) for tick in ticks]
    return result | {"type": "log", "tickvals": ticks, "ticktext": texts}


def _named_positions(axis: Axis) -> dict[str, Any]:
    """Return an axis of positions, of which some are named: names may occur more than once."""
    names = axis.categories
    shown = range(0, len(names), max(1, math.ceil(len(names) / MAX_TICKS)))
    named = {"tickvals": [*shown], "ticktext": [plotly_text(names[index]) for index in shown]}
    return _axis(replace(axis, categories=()), []) | named | {"showgrid": False}


def _tick_text(tick: float) -> str:
    return f"{tick:,.6g}" if tick < 1e6 else f"{tick:,.3g}"


def _count_ticks(counts: Sequence[float]) -> list[float]:
    if len(counts) <= MAX_TICKS:
        return [*counts]
    first, last = math.log2(counts[0]), math.log2(counts[-1])
    powers = range(math.ceil(first), math.floor(last) + 1)
    if len(powers) >= 2:
        return [2.0**power for power in powers]
    # Of equal distances on a logarithmic axis, the nearest counts; the first and the last are kept.
    wanted = [2 ** (first + (last - first) * i / (MAX_TICKS - 1)) for i in range(MAX_TICKS)]
    return sorted({min(counts, key=lambda count: abs(count - position)) for position in wanted})


def known_values(figure: Figure) -> tuple[list[float], list[float]]:
    """Return the known values on the horizontal and on the left axis."""
    lines = [line for line in figure.lines if not line.on_right]
    vertical = [y for line in lines for y in (*line.y, *line.low, *line.high)]
    return (
        [x for line in figure.lines for x in line.x if x > 0],
        [y for y in vertical if y is not None and math.isfinite(y) and y > 0],
    )


def plotly_text(text: str) -> str:
    """Return text that Plotly shows literally: it reads a subset of HTML."""
    return escape(shorten(printable(text), MAX_NAME_LENGTH), quote=False)


def value_text(value: float, axis: Axis) -> str:
    """Return a value as its axis shows it."""
    return percent(value) if axis.percent else number(value)


def rounded(value: float) -> float:
    """Return a number with six digits: a pixel shows no more, and the page stays small."""
    return float(f"{value:.6g}") if math.isfinite(value) else 0.0
