"""The table of all figures, in the order of the page.

To add a figure, add an entry here, and its name to ``page_sections.FIGURE_SECTIONS``: the page
shows it in that section.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from scalewise.report.curve_report import CurveReport
from scalewise.report.figures import Figure
from scalewise.report.figures.causes import causes
from scalewise.report.figures.describe import describe
from scalewise.report.figures.pareto import pareto, pareto_energy
from scalewise.report.figures.ranks import ranks
from scalewise.report.figures.resources import (
    cost,
    energy,
    exposed_communication,
    memory,
    sent_bytes,
)
from scalewise.report.figures.scaling import efficiency, speedup, throughput_and_efficiency
from scalewise.report.figures.series import Reports
from scalewise.report.figures.throughput import throughput
from scalewise.report.figures.times import complete_time, epoch_time, lost_time, predicted_time

OneFigure = Callable[[Reports], Figure | None]
FigurePerCurve = Callable[[CurveReport], Figure | None]


@dataclass(frozen=True, slots=True)
class PerCurve:
    """A figure that shows one curve: a report has one for each curve."""

    draw: FigurePerCurve


FIGURES: Mapping[str, OneFigure | PerCurve] = {
    "throughput": throughput,
    "speedup": speedup,
    "efficiency": efficiency,
    "both": throughput_and_efficiency,
    "causes": PerCurve(causes),
    "lost": lost_time,
    "time": complete_time,
    "epoch": epoch_time,
    "ranks": PerCurve(ranks),
    "memory": memory,
    "sent": sent_bytes,
    "exposed": exposed_communication,
    "energy": energy,
    "cost": cost,
    "pareto": pareto,
    "pareto-energy": pareto_energy,
    "predicted-time": predicted_time,
}
"""By name, as ``--plot`` takes it."""


def figures(reports: Reports, name: str) -> list[Figure]:
    """Return the figures of this name that are worth drawing: at most one, or one for each curve of
    a figure that shows one curve.
    """
    kind = FIGURES[name]
    drawn = [kind.draw(r) for r in reports] if isinstance(kind, PerCurve) else [kind(reports)]
    return [_described(figure) for figure in drawn if figure and figure.worth_drawing]


def all_figures(reports: Reports) -> dict[str, list[Figure]]:
    """Return all figures that are worth drawing, by name, in the order of ``FIGURES``."""
    drawn = {name: figures(reports, name) for name in FIGURES}
    return {name: shown for name, shown in drawn.items() if shown}


def _described(figure: Figure) -> Figure:
    return figure if figure.description else replace(figure, description=describe(figure))
