"""Time: complete jobs by span, epochs, lost time by cause, and what a prediction expects."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from scalewise.analysis.explain.lost_time import lost_time as lost_time_of
from scalewise.analysis.measure import Estimate, ScalingCurve
from scalewise.analysis.predict import Prediction
from scalewise.record.schema import in_order_of_life
from scalewise.report.figures import Axis, Bars, Figure, Line
from scalewise.report.figures.palette import CAUSE_COLORS, TOTAL_COLOR, cause_color, span_color
from scalewise.report.figures.series import (
    CHECKED,
    DEVICES,
    PREDICTED,
    TIME_UNITS,
    Reports,
    choose_unit,
    curve_names,
    make_line,
    metric_figure,
    points_of,
)

TOTAL = "total"
"""The name of a complete time whose spans are unknown."""


def complete_time(reports: Reports) -> Figure | None:
    """Return the seconds of the complete job, stacked by span where spans are known."""
    rows: list[tuple[str, int, dict[str, float]]] = []
    for name, report in zip(curve_names(reports), reports):
        for point in report.curve.points:
            if point.time:
                parts = point.complete or {TOTAL: point.time}
                seconds = {span: estimate.value for span, estimate in parts.items()}
                rows.append((name, point.devices, seconds))
    if not rows:
        return None
    unit, size = choose_unit((sum(parts.values()) for _, _, parts in rows), TIME_UNITS)
    spans = in_order_of_life(span for _, _, parts in rows for span in parts)
    colors = {span: TOTAL_COLOR if span == TOTAL else span_color(span) for span in spans}
    label = job_label(unit, [report.curve for report in reports])
    return _stacked("time", "Complete time", Axis(label), rows, colors, size)


def lost_time(reports: Reports) -> Figure | None:
    """Return what a complete job loses, as shares of its time, stacked by cause."""
    rows: list[tuple[str, int, dict[str, float]]] = []
    for name, report in zip(curve_names(reports), reports):
        for point in report.explanation.points if report.explanation else ():
            if losses := lost_time_of(point):
                rows.append((name, point.devices, {row.cause: row.share for row in losses}))
    if not rows:
        return None
    causes = {cause for _, _, parts in rows for cause in parts}
    order = [*(cause for cause in CAUSE_COLORS if cause in causes), *causes - CAUSE_COLORS.keys()]
    colors = {cause: cause_color(cause) for cause in order}
    label = "lost, of the complete time"
    return _stacked("lost", "Lost time", Axis(label, percent=True), rows, colors)


def _stacked(
    name: str,
    title: str,
    y: Axis,
    rows: Sequence[tuple[str, int, dict[str, float]]],
    colors: dict[str, str],
    size: float = 1.0,
) -> Figure:
    """Return stacked bars; a row is (curve, devices, parts), colors are in the parts' order."""
    several = len({curve for curve, _, _ in rows}) > 1
    return Figure(
        name=name,
        title=title,
        x=Axis(
            "devices",
            categories=tuple(str(devices) for _, devices, _ in rows),
            groups=tuple(curve for curve, _, _ in rows) if several else (),
        ),
        y=y,
        bars=tuple(
            Bars(part, tuple(parts.get(part, 0.0) / size for _, _, parts in rows), color)
            for part, color in colors.items()
        ),
    )


def epoch_time(reports: Reports) -> Figure | None:
    """Return the seconds of an epoch against devices."""
    points = (point for report in reports for point in report.curve.points)
    unit, size = choose_unit((p.epoch_time.value for p in points if p.epoch_time), TIME_UNITS)
    return metric_figure(
        "epoch", "Epoch time", f"{unit} per epoch", reports,
        lambda point: point.epoch_time and point.epoch_time * (1 / size),
    )  # fmt: skip


def predicted_time(reports: Reports) -> Figure | None:
    """Return the complete time, measured and predicted."""
    named = [
        (name, report.prediction)
        for name, report in zip(curve_names(reports), reports)
        if report.prediction
    ]
    return time_figure(named)


def time_figure(named: Sequence[tuple[str, Prediction]]) -> Figure | None:
    """Return the complete times of predictions, each with its name."""
    lines = [
        line
        for color, (name, prediction) in enumerate(named)
        for line in _time_lines(name, prediction, color)
    ]
    if not any(line.role in ("predicted", "checked") for line in lines):
        return None
    unit, size = choose_unit((y for line in lines for y in line.y), TIME_UNITS)
    label = job_label(unit, [prediction.curve for _, prediction in named])
    return Figure(
        name="predicted-time",
        title="Complete time: measured and predicted",
        x=DEVICES,
        y=Axis(label, log=True),
        lines=tuple(_divided(line, size) for line in lines),
    )


def _time_lines(name: str, prediction: Prediction, color: int) -> Iterator[Line]:
    measured = points_of(prediction.curve.points, lambda point: point.time)
    if not measured:
        return
    yield make_line(name, measured, color)
    last_devices, last = measured[-1]
    points = [(point, point.time) for point in prediction.points if point.time]
    ahead = [(point.devices, time) for point, time in points if point.devices > last_devices]
    if ahead:  # The line starts at the last measured point.
        start = (last_devices, Estimate(last.value, last.value, last.value))
        yield make_line(name, [start, *ahead], color, "predicted", what=PREDICTED)
    if checked := [(point.devices, time) for point, time in points if point.checks]:
        yield make_line(name, checked, color, "checked", what=CHECKED)


def _divided(line: Line, size: float) -> Line:
    def divided(values: Sequence[float | None]) -> tuple[float | None, ...]:
        return tuple(None if value is None else value / size for value in values)

    y = tuple(value / size for value in line.y)
    return replace(line, y=y, low=divided(line.low), high=divided(line.high))


def job_label(unit: str, curves: Sequence[ScalingCurve]) -> str:
    """Return the label of a time: of a unit of work, of a full run or of the measured job."""
    works = {curve.unit_of_work for curve in curves}
    full_runs = {curve.full_run.text if curve.full_run else None for curve in curves}
    if len(works) == 1 and (work := works.pop()):
        return f"{unit} per {work}"
    if len(full_runs) == 1 and (text := full_runs.pop()):
        return f"{unit}, full run of {text}"
    return f"{unit}, complete job"
