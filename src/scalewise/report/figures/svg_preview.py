"""A static picture of a figure of lines: the page shows it until Plotly has drawn the figure.

It is made from what Plotly gets, so that both look alike, and takes the size of its place on the
page: only the inner drawing is stretched, not its texts and strokes. Colors are CSS variables of
the page, texts are escaped already.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from scalewise.report.figures.plotly_axes import TOP_MARGIN
from scalewise.report.figures.plotly_labels import (
    LABEL_DISTANCE,
    LABEL_PIXELS,
    LINE_SPACING,
    NARROW_PLOT,
    RING_PIXELS,
)

SIZE = 1000
"""Width and height of the inner drawing, in its own units."""
FONT_PIXELS = 13
TITLE_PIXELS = 15.6
"""Size of the font of an axis' title, as Plotly makes it."""
DIGIT_PIXELS = 7.5
RIGHT_MARGIN = 16
BOTTOM_MARGIN = 58
AXIS_MARGIN = 44
"""Pixels to the left of the axis, besides the numbers at its ticks."""
DATA_MARGIN = 0.06
"""Room on each side of the data, as a share of its range."""
BREAK = re.compile("<br>")
TAG = re.compile("</?b>")
ANCHORS = {"left": "end", "center": "middle", "right": "start"}
SIGNS = {"left": -1, "top": -1, "center": 0, "middle": 0, "right": 1, "bottom": 1}

Trace = Mapping[str, Any]
Scale = Callable[[float], float]


def svg_preview(figure: Mapping[str, Any]) -> Markup:
    """Return the picture of a figure, which is given as ``plotly_figure`` returns it."""
    traces, layout = figure["data"], figure["layout"]
    horizontal = _scale(layout["xaxis"], [x for trace in traces for x in trace["x"]])
    vertical = _scale(layout["yaxis"], [y for trace in traces for y in _heights(trace)])
    x_ticks = _ticks(layout["xaxis"], horizontal, lambda text: DIGIT_PIXELS * len(text) + 8, 0)
    y_ticks = _ticks(layout["yaxis"], vertical, lambda text: FONT_PIXELS + 4, 1)
    left = AXIS_MARGIN + DIGIT_PIXELS * max((len(text) for _, text in y_ticks), default=0)
    padding = f"{TOP_MARGIN}px {RIGHT_MARGIN}px {BOTTOM_MARGIN}px {left:.0f}px"
    parts = [
        f'<div class="preview" aria-hidden="true" style="padding:{padding}">',
        f'<svg width="100%" height="100%" overflow="visible" font-size="{FONT_PIXELS}">',
        *_axes(layout, x_ticks, y_ticks, left),
        f'<svg viewBox="0 0 {SIZE} {SIZE}" preserveAspectRatio="none" overflow="visible" '
        'fill="none" stroke-linecap="butt">',
        *(path for trace in traces for path in _paths(trace, horizontal, vertical)),
        "</svg>",
        *(mark for trace in traces for mark in _marks(trace, horizontal, vertical)),
        "</svg></div>",
    ]
    return Markup("".join(parts))


def _heights(trace: Trace) -> list[float]:
    bars = trace.get("error_y")
    if not bars:
        return [*trace["y"]]
    highs = [y + up for y, up in zip(trace["y"], bars["array"])]
    return [*highs, *(y - down for y, down in zip(trace["y"], bars["arrayminus"]))]


def _scale(axis: Mapping[str, Any], values: Sequence[float]) -> Scale:
    """Return the function from a value to its place between the ends of the axis, 0 to 1."""
    is_log = axis.get("type") == "log"
    known = [math.log10(value) if is_log else value for value in values if value > 0 or not is_log]
    low, high = axis.get("range") or (min(known), max(known))
    if "range" not in axis:
        room = DATA_MARGIN * (high - low) or 0.1
        low, high = (low - room if is_log else min(0.0, low)), high + room

    def share(value: float) -> float:
        place = math.log10(value) if is_log and value > 0 else value
        return (place - low) / (high - low)

    return share


def _ticks(
    axis: Mapping[str, Any], scale: Scale, pixels: Callable[[str], float], direction: int
) -> list[tuple[float, str]]:
    """Return places and texts of ticks that do not overlap on a narrow screen."""
    kept: list[tuple[float, str]] = []
    free = -math.inf
    for tick, text in zip(axis.get("tickvals", ()), axis.get("ticktext", ())):
        half = pixels(text) / 2 / NARROW_PLOT[direction]
        if 0 <= scale(tick) <= 1 and scale(tick) - half >= free:
            kept.append((scale(tick), text))
            free = scale(tick) + half
    return kept


def _axes(
    layout: Mapping[str, Any],
    x_ticks: Sequence[tuple[float, str]],
    y_ticks: Sequence[tuple[float, str]],
    left: float,
) -> Iterator[str]:
    yield '<g style="stroke:var(--grid)">'
    for share, _ in x_ticks:
        yield f'<line x1="{share:.2%}" x2="{share:.2%}" y1="0" y2="100%"/>'
    for share, _ in y_ticks:
        yield f'<line x1="0" x2="100%" y1="{1 - share:.2%}" y2="{1 - share:.2%}"/>'
    yield '</g><g style="fill:var(--soft)">'
    for share, text in x_ticks:
        yield f'<text x="{share:.2%}" y="100%" dy="19" text-anchor="middle">{text}</text>'
    for share, text in y_ticks:
        yield f'<text x="0" y="{1 - share:.2%}" dx="-7" dy="4.5" text-anchor="end">{text}</text>'
    titles = [layout[key]["title"]["text"] for key in ("xaxis", "yaxis")]
    yield f'</g><g style="fill:var(--soft)" font-size="{TITLE_PIXELS}">'
    yield f'<text x="50%" y="100%" dy="46" text-anchor="middle">{titles[0]}</text>'
    yield f'<svg x="{18 - left:.0f}" y="50%" overflow="visible"><text transform="rotate(-90)" '
    yield f'text-anchor="middle">{titles[1]}</text></svg></g>'


def _paths(trace: Trace, horizontal: Scale, vertical: Scale) -> Iterator[str]:
    """Yield a trace as a band, or as its line, error bars and markers."""
    points = [
        (SIZE * horizontal(x), SIZE * (1 - vertical(y)))
        for x, y in zip(trace["x"], trace["y"])
        if y > 0
    ]
    if not points or trace["meta"]["role"] == "mark":
        return
    line = "M" + "L".join(f"{x:.0f} {y:.0f}" for x, y in points)
    if trace.get("fill"):
        yield f'<path d="{line}Z" style="fill:{trace["fillcolor"]}"/>'
        return
    color = trace["line"]["color"]
    if "lines" in trace["mode"]:
        dash = trace["line"]["dash"].replace("solid", "none")
        yield _stroke(line, color, trace["line"]["width"], f";stroke-dasharray:{dash}")
    if bars := trace.get("error_y"):
        ends = zip(trace["x"], trace["y"], bars["array"], bars["arrayminus"])
        steps = "".join(
            f"M{SIZE * horizontal(x):.0f} {SIZE * (1 - vertical(y + up)):.0f}"
            f"V{SIZE * (1 - vertical(y - down)):.0f}"
            for x, y, up, down in ends
            if y - down > 0
        )
        yield _stroke(steps, color, bars["thickness"])
    if "markers" in trace["mode"]:
        # A line of length 0 with round ends is a dot, which the inner drawing does not stretch.
        dots = "".join(f"M{x:.0f} {y:.0f}h0" for x, y in points)
        yield _stroke(dots, color, trace["marker"]["size"], ";stroke-linecap:round")
        if trace["marker"]["symbol"].endswith("open"):
            inner = trace["marker"]["size"] - 2 * trace["marker"]["line"]["width"]
            yield _stroke(dots, "var(--card)", inner, ";stroke-linecap:round")


def _stroke(path: str, color: str, width: float, style: str = "") -> str:
    return (
        f'<path d="{path}" vector-effect="non-scaling-stroke" '
        f'style="stroke:{color};stroke-width:{width:g}{style}"/>'
    )


def _marks(trace: Trace, horizontal: Scale, vertical: Scale) -> Iterator[str]:
    """Yield the rings of marked points, and their labels."""
    if trace["meta"]["role"] != "mark":
        return
    for x, y, text, position in zip(trace["x"], trace["y"], trace["text"], trace["textposition"]):
        place = f'x="{horizontal(x):.2%}" y="{1 - vertical(y):.2%}"'
        yield f'<svg {place} overflow="visible"><circle r="{RING_PIXELS / 2:g}" fill="none" '
        yield 'style="stroke:var(--text);stroke-width:2.5"/>'
        above, side = position.split()
        lines = BREAK.split(TAG.sub("", text))
        spacing = LINE_SPACING * LABEL_PIXELS
        height = spacing * (len(lines) - 1) + LABEL_PIXELS
        top = SIGNS[above] * LABEL_DISTANCE + (SIGNS[above] - 1) * height / 2
        for index, line in enumerate(lines):
            yield (
                f'<text x="{SIGNS[side] * LABEL_DISTANCE:.0f}" font-size="{LABEL_PIXELS}" '
                f'y="{top + 0.8 * LABEL_PIXELS + index * spacing:.0f}" font-weight="bold" '
                f'text-anchor="{ANCHORS[side]}" style="fill:var(--text)">{line}</text>'
            )
        yield "</svg>"
