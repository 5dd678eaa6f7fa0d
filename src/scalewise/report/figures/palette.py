"""Colors, markers, dashes and hatches of all figures: both renderers use them.

A color is never the only sign: lines also differ in marker, roles in dash pattern, parts of bars in
order and hatch.
"""

from collections.abc import Mapping

from scalewise.record.schema import SPAN_COLORS, UNEXPLAINED
from scalewise.report.figures import Role

COLORS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7A5C3E",
)  # fmt: skip
"""Okabe and Ito's palette for colour-blind readers, with brown in place of its yellow."""
MARKERS = "osD^vP*X<"
"""Matplotlib's names. One more marker than colors: a color that is used again has another marker.
"""
PLOTLY_MARKERS = (
    "circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "star", "x",
    "triangle-left",
)  # fmt: skip
"""Plotly's names of the same markers, in the same order."""
DASHES: Mapping[Role, tuple[float, ...]] = {
    "ideal": (1.0, 1.6), "predicted": (4.0, 2.0), "second": (6.4, 1.6, 1.0, 1.6),
}  # fmt: skip
"""By role of a line that is not solid: lengths of dashes and gaps, in widths of the line."""
IDEAL_COLOR = "#8C8C8C"
MARK_COLOR = "#000000"
OTHER_COLOR = "#DDDDDD"
"""Color of a part that has none of its own, such as a span that a plugin has added."""
TOTAL_COLOR = COLORS[0]
CAUSE_COLORS: Mapping[str, str] = {
    "efficiency": "#0072B2",
    "computation": "#56B4E9",
    "balance": "#CC79A7",
    "input": "#E69F00",
    "transfer": "#D55E00",
    "orchestration": "#7A5C3E",
    "start-up": "#999999",
    "validation": "#009E73",
    "checkpoints": "#F0E442",
    "shutdown": "#44AA99",
    UNEXPLAINED: "#000000",
}
"""By cause of lost efficiency (``chain.CAUSES``) or lost time; ``efficiency`` is what is left."""
HATCHES: Mapping[str, str] = {
    "train": "", "efficiency": "", "total": "",
    "launch": "///", "rendezvous": "...", "data": "\\\\\\", "build": "---", "compile": "|||",
    "restore": "ooo", "validate": "xxx", "checkpoint": "+++", "shutdown": "***",
    "computation": "---", "balance": "...", "input": "\\\\\\", "transfer": "xxx",
    "orchestration": "|||", "start-up": "///", "validation": "ooo", "checkpoints": "+++",
    UNEXPLAINED: "++",
}  # fmt: skip
"""Matplotlib's hatches, by part of a bar; the largest parts are plain. Plotly's shapes are single
signs."""
OTHER_HATCH = "//"
HEAT_LOW, HEAT_MIDDLE, HEAT_HIGH = "#2166AC", "#F7F7F7", "#B2182B"
"""Ends and middle of the scale of a heat map with values on both sides of its middle."""


def line_color(index: int) -> str:
    """Return the color of the lines about a curve."""
    return COLORS[index % len(COLORS)]


def span_color(span: str) -> str:
    """Return the color of a span of the complete time."""
    return SPAN_COLORS.get(span, OTHER_COLOR)


def cause_color(cause: str) -> str:
    """Return the color of a cause of lost efficiency or time."""
    return CAUSE_COLORS.get(cause, OTHER_COLOR)
