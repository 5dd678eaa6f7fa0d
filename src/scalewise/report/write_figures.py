"""Write plots as PNG, SVG or PDF: one of a report, all of them in one picture, a prediction's."""

from collections.abc import Sequence
from pathlib import Path

from scalewise.analysis.predict import Prediction
from scalewise.errors import NotEnoughData, SpecError, shown
from scalewise.report.curve_report import CurveReport
from scalewise.report.figures import IMAGE_SUFFIXES, Figure
from scalewise.report.figures import matplotlib_figure as paper
from scalewise.report.figures.all_figures import FIGURES, all_figures, figures
from scalewise.report.figures.matplotlib_figure import Columns
from scalewise.report.figures.throughput import throughput_figure, throughput_lines
from scalewise.report.figures.times import time_figure
from scalewise.validate import suggest_name


def write_plot(
    reports: Sequence[CurveReport], path: Path, *, plot: str | None = None, columns: Columns = 1
) -> Path:
    """Write one plot, so many columns of a paper wide; without ``plot``, all plots that have data
    as one picture.
    """
    if plot is None:
        drawn = [figure for shown in all_figures(reports).values() for figure in shown]
        if not drawn:
            raise NotEnoughData(
                "no plot has data of more than one number of devices",
                hint="measure one more, twice as large as the largest",
            )
        return paper.write(paper.draw_all(drawn), path)
    if plot not in FIGURES:
        raise SpecError(
            f"there is no plot {shown(plot)}",
            hint=suggest_name(plot, FIGURES) or f"there are: {', '.join(FIGURES)}",
        )
    drawn = figures(reports, plot)
    if not drawn:
        raise NotEnoughData(
            f"no data was measured for plot {shown(plot)}, or only one point of it",
            hint="`scalewise measure --all` shows what was measured",
        )
    if len(drawn) > 1:  # A plot for each curve.
        return paper.write(paper.draw_all(drawn), path)
    return paper.write(paper.draw(drawn[0], columns), path)


def write_prediction(prediction: Prediction, path: Path) -> Path:
    """Write what was measured and predicted, throughput and time side by side."""
    if path.suffix.lower() not in IMAGE_SUFFIXES:
        raise SpecError(
            f"cannot write {path}: unknown ending", hint=f"there are: {' '.join(IMAGE_SUFFIXES)}"
        )
    return paper.write(paper.draw_all(prediction_figures(prediction)), path)


def prediction_figures(prediction: Prediction) -> list[Figure]:
    """Return the figures of the metrics that are predicted."""
    curve = prediction.curve
    lines = list(throughput_lines(curve.name, curve, prediction, color=0))
    shown = [throughput_figure([curve], lines), time_figure([(curve.name, prediction)])]
    return [figure for figure in shown if figure]
