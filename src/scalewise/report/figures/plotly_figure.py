"""Draw a figure on the page: its value as the data and layout of Plotly.

Colors that depend on light or dark are CSS variables, ``var(--text)``: the page's script puts
their values in. Each trace says in ``meta`` to which series of the page's switches it belongs.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html import escape
from typing import Any

from scalewise.report.figures import Axis, Bars, Figure, HeatMap, Line
from scalewise.report.figures.palette import DASHES, PLOTLY_MARKERS, line_color
from scalewise.report.figures.plotly_axes import plotly_layout, plotly_text, rounded, value_text
from scalewise.report.figures.plotly_labels import (
    LABEL_PIXELS,
    RING_PIXELS,
    mark_labels,
)

LABELLED_SHARE = 0.07
"""A part of a bar that is shorter than this share of the highest bar has no label."""
VISIBLE_SHARE = 0.004
"""A part that is nowhere longer than this share of the highest bar is not drawn."""
BAND_OPACITY = 0.2
THEME_COLORS = {"#000000": "var(--text)", "#0072B2": "var(--blue)", "#7A5C3E": "var(--brown)"}
"""Colors of the palette that are too dark for a dark page."""
MODES = {"ideal": "lines", "checked": "markers", "beaten": "markers"}
"""By role of a line, where it is not drawn as a solid line with markers."""
HEAT_SCALE = (
    (0.0, "var(--heat-0)"), (0.25, "var(--heat-1)"), (0.5, "var(--heat-2)"),
    (0.75, "var(--heat-3)"), (1.0, "var(--heat-4)"),
)  # fmt: skip


def plotly_figure(figure: Figure) -> dict[str, Any]:
    """Return ``data`` and ``layout`` for Plotly; with ``linear`` axes to switch to, if an axis is
    logarithmic.
    """
    data: list[dict[str, Any]] = []
    # Ideal lines come first, so that the others are drawn over them.
    for line in sorted(figure.lines, key=lambda line: line.role != "ideal"):
        data += _line_traces(line, figure)
    highest = max(map(sum, zip(*(part.heights for part in figure.bars))), default=0.0)
    data += [
        _bar_trace(part, figure, highest)
        for part in figure.bars
        if max(part.heights) >= VISIBLE_SHARE * highest
    ]
    if figure.heat:
        data.append(_heat_trace(figure.heat, figure))
    if figure.marks:
        data.append(_mark_trace(figure))
    drawn: dict[str, Any] = {"data": data, "layout": plotly_layout(figure)}
    if figure.x.log or figure.y.log:
        linear = replace(figure, x=replace(figure.x, log=False), y=replace(figure.y, log=False))
        layout = plotly_layout(linear)
        drawn["linear"] = {"xaxis": layout["xaxis"], "yaxis": layout["yaxis"]}
        if figure.marks:
            drawn["linear"]["labels"] = mark_labels(linear)
    return drawn


def series_color(line: Line) -> str:
    """Return the color of a line on the page."""
    return "var(--ideal)" if line.role == "ideal" else _theme_color(line_color(line.color))


def _series(name: str) -> str:
    """Return what the switch of a series goes by: its whole name, since cut ones may be equal."""
    return escape(name, quote=False)


def _line_traces(line: Line, figure: Figure) -> Iterator[dict[str, Any]]:
    plain_color = line_color(line.color)
    color = _theme_color(plain_color)
    has_interval = any(low is not None for low in line.low)
    if line.role == "predicted" and has_interval:
        yield _band_trace(line, plain_color)
    is_ideal = line.role == "ideal"
    width = 2 if is_ideal else 2.5
    trace: dict[str, Any] = {
        "type": "scatter",
        "name": plotly_text(line.name),
        "meta": {"series": _series(line.name), "role": line.role},
        "x": [rounded(x) for x in line.x],
        "y": [rounded(y) for y in line.y],
        "mode": MODES.get(line.role, "lines+markers"),
        "line": {
            "color": series_color(line),
            "width": width,
            "dash": ",".join(f"{width * length:g}px" for length in DASHES.get(line.role, ()))
            or "solid",
        },
        "marker": _marker(line, color),
        "hovertext": [_point_text(line, index, figure) for index in range(len(line.x))],
        "hoverinfo": "text",
    }
    if has_interval and line.role != "predicted":
        trace["error_y"] = _error_bars(line, color)
    if line.on_right:
        trace["yaxis"] = "y2"
    yield trace


def _marker(line: Line, color: str) -> dict[str, Any]:
    symbol = PLOTLY_MARKERS[line.color % len(PLOTLY_MARKERS)]
    if line.role in ("predicted", "checked", "second", "beaten"):
        symbol += "-open"
    return {"color": color, "size": 9, "symbol": symbol, "line": {"width": 2, "color": color}}


def _band_trace(line: Line, color: str) -> dict[str, Any]:
    ends = [
        (x, low, high)
        for x, low, high in zip(line.x, line.low, line.high)
        if low is not None and high is not None
    ]
    return {
        "type": "scatter",
        "meta": {"series": _series(line.name), "role": "band"},
        "showlegend": False,
        "x": [rounded(x) for x, _, _ in [*ends, *reversed(ends)]],
        "y": [
            rounded(y)
            for y in [*(high for *_, high in ends), *(low for _, low, _ in reversed(ends))]
        ],
        "mode": "lines",
        "line": {"width": 0},
        "fill": "toself",
        "fillcolor": _transparent(color),
        "hoverinfo": "skip",
        **({"yaxis": "y2"} if line.on_right else {}),
    }


def _error_bars(line: Line, color: str) -> dict[str, Any]:
    def distances(ends: Sequence[float | None]) -> list[float]:
        return [rounded(abs(y - end)) if end is not None else 0 for y, end in zip(line.y, ends)]

    return {
        "type": "data",
        "symmetric": False,
        "array": distances(line.high),
        "arrayminus": distances(line.low),
        "color": color,
        "thickness": 1.5,
        "width": 5,
    }


def _point_text(line: Line, index: int, figure: Figure) -> str:
    """Return what hovering shows: "4 devices: 935 samples per second, 90 %: 920 to 950"."""
    axis = figure.right if line.on_right and figure.right else figure.y
    x, y = line.x[index], line.y[index]
    position = f"{value_text(x, figure.x)} {plotly_text(figure.x.label)}"
    if figure.x.categories:
        position = plotly_text(figure.x.categories[int(x)])
    elif figure.x.counts:
        position = f"{x:,.0f} device{'' if x == 1 else 's'}"
    text = f"<b>{plotly_text(line.name)}</b><br>{position}: {value_text(y, axis)}"
    text += f" {plotly_text(axis.label)}"
    low, high = (ends[index] if ends else None for ends in (line.low, line.high))
    if low is not None and high is not None and low != high:
        text += f"<br>90 %: {value_text(low, axis)} to {value_text(high, axis)}"
    if line.labels and line.labels[index]:
        text += f"<br>{plotly_text(line.labels[index])}"
    return text


def _bar_trace(part: Bars, figure: Figure, highest: float) -> dict[str, Any]:
    values = [value_text(height, figure.y) for height in part.heights]
    names = [plotly_text(name) for name in figure.x.categories]
    return {
        "type": "bar",
        "name": plotly_text(part.name),
        "meta": {"series": _series(part.name), "role": "bars"},
        "x": [_group_names(figure.x.groups), names] if figure.x.groups else names,
        "y": [rounded(height) for height in part.heights],
        "marker": {"color": _theme_color(part.color), "line": {"color": "var(--card)", "width": 1}},
        "text": [
            _bar_label(height, figure.y) if height >= LABELLED_SHARE * highest else ""
            for height in part.heights
        ],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "constraintext": "none",
        "hovertext": [
            f"<b>{plotly_text(part.name)}</b><br>{name} {plotly_text(figure.x.label)}: {value}"
            for name, value in zip(names, values)
        ],
        "hoverinfo": "text",
    }


def _group_names(groups: Sequence[str]) -> list[str]:
    """Return the names of groups as Plotly shows them; those that are equal when cut get numbers,
    because Plotly would put their bars on one another.
    """
    shown = {name: plotly_text(name) for name in groups}
    texts = [*shown.values()]
    for index, (name, text) in enumerate(shown.items()):
        if texts.count(text) > 1:
            shown[name] = f"{text} ({index + 1})"
    return [shown[name] for name in groups]


def _bar_label(height: float, axis: Axis) -> str:
    if not axis.percent:
        return f"{height:,.3g}"
    return f"{100 * height:.0f} %" if height >= 0.095 else f"{100 * height:.2g} %"


def _heat_trace(heat: HeatMap, figure: Figure) -> dict[str, Any]:
    """Return the matrix; the page's script makes the hover texts from the names in ``meta``."""
    known = [z for row in heat.values for z in row if z is not None and math.isfinite(z)]
    low, high = min(known, default=0.0), max(known, default=1.0)
    if heat.middle is not None:
        reach = max(heat.least_reach, high - heat.middle, heat.middle - low)
        low, high = heat.middle - reach, heat.middle + reach
    return {
        "type": "heatmap",
        "meta": {
            "series": plotly_text(heat.label),
            "role": "heat",
            "rows": [plotly_text(name) for name in figure.y.categories],
            "columns": [plotly_text(name) for name in figure.x.categories],
            "x": plotly_text(figure.x.label),
            "y": plotly_text(figure.y.label),
        },
        "z": [[_heat_value(z) for z in row] for row in heat.values],
        "zmin": rounded(low),
        "zmax": rounded(high),
        "colorscale": [list(step) for step in HEAT_SCALE],
        "hoverongaps": False,
        "xgap": 1,
        "ygap": 1,
        "hoverinfo": "text",
        "colorbar": {
            "title": {"text": plotly_text(heat.label), "side": "right"},
            "thickness": 12,
            "outlinewidth": 0,
        },
    }


def _heat_value(value: float | None) -> float | None:
    """Return a value with three digits; a cell without a finite value is empty."""
    return float(f"{value:.3g}") if value is not None and math.isfinite(value) else None


def _mark_trace(figure: Figure) -> dict[str, Any]:
    """Return the marked points. They are a trace, because annotations do not follow log axes."""
    marks = figure.marks
    return {
        "type": "scatter",
        "meta": {"series": "", "role": "mark"},
        "showlegend": False,
        "x": [rounded(mark.x) for mark in marks],
        "y": [rounded(mark.y) for mark in marks],
        "mode": "markers+text",
        **mark_labels(figure),
        "textfont": {"size": LABEL_PIXELS, "color": "var(--text)"},
        "marker": {
            "symbol": "circle-open",
            "size": RING_PIXELS,
            "color": "var(--text)",
            "line": {"width": 2.5, "color": "var(--text)"},
        },
        "cliponaxis": False,
        "hoverinfo": "skip",
    }


def _theme_color(color: str) -> str:
    """Return a color that has another shade on a dark page as a CSS variable."""
    return THEME_COLORS.get(color, color)


def _transparent(color: str) -> str:
    red, green, blue = (int(color[start : start + 2], 16) for start in (1, 3, 5))
    if color == "#000000":  # Visible on dark pages too.
        red = green = blue = 128
    return f"rgba({red}, {green}, {blue}, {BAND_OPACITY})"
