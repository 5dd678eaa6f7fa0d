"""How Matplotlib draws the lines and bars of figures: fonts, colors, markers, dashes, hatches."""

from typing import Any

from scalewise.report.figures import Bars, Line, Role
from scalewise.report.figures.palette import (
    DASHES,
    HATCHES,
    IDEAL_COLOR,
    MARKERS,
    OTHER_HATCH,
    line_color,
)

MAX_CURVES = 40
"""More curves are not drawn: they could not be told apart."""
LEGEND_POINTS = 7.5
STYLE: Any = {
    "axes.axisbelow": True, "axes.grid": True, "axes.linewidth": 0.6, "axes.spines.right": False,
    "axes.spines.top": False, "axes.labelsize": 8, "axes.titlesize": 9, "font.size": 8,
    "grid.alpha": 0.25, "grid.linewidth": 0.5, "hatch.linewidth": 0.5,
    "legend.fontsize": LEGEND_POINTS, "lines.linewidth": 1.3, "lines.markersize": 4,
    "xtick.labelsize": 8, "ytick.labelsize": 8, "xtick.major.width": 0.6, "ytick.major.width": 0.6,
    "pdf.fonttype": 42, "svg.fonttype": "path",  # Fonts are in the file.
    "text.parse_math": False, "text.usetex": False,  # A name may have a $.
    "svg.hashsalt": "scalewise",  # Constant, so that equal figures give equal files.
}  # fmt: skip
ROLE_STYLES: dict[Role, dict[str, Any]] = {
    "measured": {},
    "second": {"markerfacecolor": "white"},
    "ideal": {"linewidth": 0.9, "marker": "", "color": IDEAL_COLOR},
    "predicted": {"markerfacecolor": "white"},
    "checked": {"linestyle": "none", "markerfacecolor": "white", "markersize": 6},
    "front": {},
    "beaten": {"linestyle": "none", "markerfacecolor": "white"},
}


def line_style(line: Line) -> dict[str, Any]:
    """Return Matplotlib's arguments for a line: color and marker of its curve, dashes of its role.

    >>> line_style(Line("a", (1,), (2.0,)))["marker"]
    'o'
    """
    color = line_color(line.color)
    style: dict[str, Any] = {"color": color, "marker": MARKERS[line.color % len(MARKERS)]}
    if dashes := DASHES.get(line.role):
        style["linestyle"] = (0, dashes)
    return style | ROLE_STYLES[line.role]


def bar_style(part: Bars) -> dict[str, Any]:
    """Return Matplotlib's arguments for a part of stacked bars."""
    dark = sum(int(part.color[k : k + 2], 16) for k in (1, 3, 5)) < 3 * 128
    return {
        "facecolor": part.color,
        "edgecolor": "#FFFFFF" if dark else "#555555",
        "linewidth": 0.4,
        "hatch": HATCHES.get(part.name, OTHER_HATCH),
    }
