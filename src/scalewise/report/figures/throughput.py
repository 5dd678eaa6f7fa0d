"""The figure that heads a report: throughput measured, ideal and predicted, and the choice."""

from collections.abc import Iterator, Sequence

from scalewise.analysis.measure import Estimate, ScalingCurve
from scalewise.analysis.number_format import format_count
from scalewise.analysis.predict import Prediction
from scalewise.report.figures import Axis, Figure, Line, Mark
from scalewise.report.figures.series import (
    CHECKED,
    DEVICES,
    IDEAL,
    PREDICTED,
    Reports,
    curve_names,
    make_line,
    points_of,
)


def throughput(reports: Reports) -> Figure | None:
    """Return throughput against devices for all curves; the recommended points are marked."""
    lines = [
        line
        for color, (name, report) in enumerate(zip(curve_names(reports), reports))
        for line in throughput_lines(name, report.curve, report.prediction, color)
    ]
    marks = []
    for color, report in enumerate(reports):
        chosen = report.summary.chosen
        curve_color = color if len(reports) > 1 else None
        marks += [
            Mark(
                point.devices,
                point.throughput.value,
                f"use {format_count(point.devices)}",
                curve_color,
            )
            for point in report.curve.points
            if chosen and point.devices == chosen.devices and point.throughput
        ]
    return throughput_figure([report.curve for report in reports], lines, marks)


def throughput_figure(
    curves: Sequence[ScalingCurve], lines: Sequence[Line], marks: Sequence[Mark] = ()
) -> Figure | None:
    """Return the figure of these lines, whose unit is that of the curves."""
    if not lines:
        return None
    label = " or ".join(dict.fromkeys(curve.rate_label for curve in curves))
    return Figure(
        name="throughput",
        title="Throughput",
        x=DEVICES,
        y=Axis(label, log=True),
        lines=tuple(lines),
        marks=tuple(marks),
    )


def throughput_lines(
    name: str, curve: ScalingCurve, prediction: Prediction | None, color: int
) -> Iterator[Line]:
    """Yield a curve's throughput: measured, ideal, predicted, and predicted from fewer devices."""
    measured = points_of(curve.points, lambda point: point.throughput)
    if not measured:
        return
    yield make_line(name, measured, color)
    last_devices, last = measured[-1]
    points = prediction.points if prediction else ()
    ahead = [(p.devices, p.throughput) for p in points if p.throughput and p.devices > last_devices]
    counts = sorted({devices for devices, _ in [*measured, *ahead]})
    first_devices, first = measured[0]
    ideal = tuple(first.value * count / first_devices for count in counts)
    yield Line(IDEAL, tuple(counts), ideal, role="ideal", color=color, what=IDEAL)
    if ahead:  # The line starts at the last measured point.
        start = (last_devices, Estimate(last.value, last.value, last.value))
        yield make_line(name, [start, *ahead], color, "predicted", what=PREDICTED)
    checked = [(p.devices, p.throughput) for p in points if p.checks and p.throughput]
    if checked:
        yield make_line(name, checked, color, "checked", what=CHECKED)
