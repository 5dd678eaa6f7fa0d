"""A history of results: one line for each number of devices, with the changes marked."""

from dataclasses import replace

from scalewise.analysis.compare import Trend
from scalewise.analysis.number_format import format_count, format_percent
from scalewise.report.figures import Axis, Figure, Mark
from scalewise.report.figures.describe import describe
from scalewise.report.figures.series import TIME_UNITS, choose_unit, make_line
from scalewise.report.text.compare import names_of


def trend_figure(trend: Trend) -> Figure | None:
    """Return throughput, or the complete time, over the results; None without a common number of
    devices. Changes that are more than noise are marked.
    """
    values = [value.value for line in trend.series for value in line.values if value]
    size, label = 1.0, trend.sides[0].curve.rate_label
    if trend.metric == "time":
        unit, size = choose_unit(values, TIME_UNITS)
        label = f"{unit}, complete job"
    lines, marks = [], []
    for color, series in enumerate(trend.series):
        points = [(index, value * (1 / size)) for index, value in enumerate(series.values) if value]
        if points:
            lines.append(make_line(format_count(series.devices), points, color))
        for step in series.steps:
            value = series.values[step.index]
            change = format_percent(step.ratio.value - 1)
            if value:
                text = change if step.ratio.value < 1 else f"+{change}"
                marks.append(Mark(step.index, value.value / size, text, color))
    if not lines:
        return None
    figure = Figure(
        name="trend",
        title="History",
        x=Axis("result", categories=tuple(names_of(trend.sides))),
        y=Axis(label, log=True),
        lines=tuple(lines),
        marks=tuple(marks),
    )
    return replace(figure, description=describe(figure))
