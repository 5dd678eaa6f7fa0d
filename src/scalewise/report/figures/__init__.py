"""Figures as values: what a plot shows, and not how it is drawn.

``all_figures`` has the table of all of them; ``plotly_figure`` draws them for the page,
``matplotlib_figure`` for papers and slides, both in the colors of ``palette``. Texts are as users
wrote them: whoever draws escapes them.
"""

from dataclasses import dataclass
from typing import Literal

IMAGE_SUFFIXES = (".png", ".svg", ".pdf")
"""Of the files in which a figure can be written."""
Role = Literal["measured", "second", "ideal", "predicted", "checked", "front", "beaten"]
"""What a line shows: measurements; a second measured quantity of the same curve; ideal scaling; a
prediction; a prediction of measured points from fewer devices (points without a line); the choices
that no other choice beats in both directions (Pareto front); choices that are beaten (points)."""


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis: its label, and how its values are shown."""

    label: str
    log: bool = False
    """Whether it is logarithmic; on the page, readers may switch. A linear axis begins at 0."""
    percent: bool = False
    """Whether values are shares, to be shown in percent."""
    counts: bool = False
    """Whether values are numbers of devices: ticks only where there are points."""
    categories: tuple[str, ...] = ()
    """The names of positions 0, 1, 2 … of bars and heat maps."""
    groups: tuple[str, ...] = ()
    """The curve of each position, if there are several curves; neighbours share it."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line or points, with intervals where they are known."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float | None, ...] = ()
    """The lower ends of the intervals; empty if the line has none."""
    high: tuple[float | None, ...] = ()
    role: Role = "measured"
    color: int = 0
    """Index of color and marker: lines about the same curve share it."""
    on_right: bool = False
    """Whether its values belong to the axis on the right."""
    labels: tuple[str, ...] = ()
    """What to say of each point beside its values; empty for nothing."""
    curve: str = ""
    """The name of the curve it is about; with ``what`` for legends that show curves and kinds of
    lines apart."""
    what: str = ""
    """What it shows of its curve: ``predicted``, ``peak``."""


@dataclass(frozen=True, slots=True)
class Bars:
    """One part of stacked bars: its height at each position of the horizontal axis."""

    name: str
    heights: tuple[float, ...]
    color: str
    """As #RRGGBB: parts keep their color in all figures."""


@dataclass(frozen=True, slots=True)
class HeatMap:
    """A matrix: rows along the vertical axis, the first at the top."""

    values: tuple[tuple[float | None, ...], ...]
    label: str
    """What the color means."""
    middle: float | None = None
    """The value of the neutral color, if values lie on both sides of it."""
    least_reach: float = 0.0
    """The strongest colors are at least this far from the middle: noise stays pale."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A marked point, such as the recommended number of devices."""

    x: float
    y: float
    text: str
    color: int | None = None
    """The ``Line.color`` of its curve; None if there is a single curve."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One plot."""

    name: str
    """The name for ``--plot`` and of files: "throughput"."""
    title: str
    x: Axis
    y: Axis
    lines: tuple[Line, ...] = ()
    bars: tuple[Bars, ...] = ()
    heat: HeatMap | None = None
    marks: tuple[Mark, ...] = ()
    right: Axis | None = None
    """The axis on the right, for lines with ``on_right``."""
    description: str = ""
    """The figure in words, for readers who cannot see it."""

    @property
    def worth_drawing(self) -> bool:
        """Whether it shows more than one measured position: a single dot is no plot."""
        if self.heat is not None:
            return len(self.heat.values) > 1
        positions = {x for line in self.lines if line.role != "ideal" for x in line.x}
        return len(positions) > 1 or max((len(part.heights) for part in self.bars), default=0) > 1
