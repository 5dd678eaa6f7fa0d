"""Speedup and efficiency against devices."""

from scalewise.analysis.measure import Estimate, Point
from scalewise.report.figures import Axis, Figure, Line
from scalewise.report.figures.series import (
    DEVICES,
    IDEAL,
    Reports,
    curve_names,
    make_line,
    metric_lines,
    points_of,
)

EFFICIENCY = Axis("parallel efficiency", percent=True)


def _speedup(point: Point) -> Estimate | None:
    return point.speedup or point.speedup_time


def speedup(reports: Reports) -> Figure | None:
    """Return the speedup over each curve's baseline; by complete time without throughputs."""
    lines = metric_lines(reports, _speedup)
    if not lines:
        return None
    baselines = {report.curve.baseline.devices for report in reports}
    for color, report in enumerate(reports):
        if color and len(baselines) == 1:  # One line of ideal scaling serves all curves.
            break
        counts = [devices for devices, _ in points_of(report.curve.points, _speedup)]
        if len(baselines) == 1:
            counts = sorted({int(x) for line in lines for x in line.x})
        base = report.curve.baseline.devices
        ideal = tuple(devices / base for devices in counts)
        lines.append(Line(IDEAL, tuple(counts), ideal, role="ideal", color=color, what=IDEAL))
    return Figure("speedup", "Speedup", DEVICES, Axis("speedup", log=True), tuple(lines))


def efficiency(reports: Reports) -> Figure | None:
    """Return the parallel efficiency of all curves."""
    lines = metric_lines(reports, lambda point: point.efficiency)
    if not lines:
        return None
    counts = sorted({x for line in lines for x in line.x})
    lines.append(Line(IDEAL, tuple(counts), (1.0,) * len(counts), role="ideal", what=IDEAL))
    return Figure("efficiency", "Efficiency", DEVICES, EFFICIENCY, tuple(lines))


def throughput_and_efficiency(reports: Reports) -> Figure | None:
    """Return throughput (left axis) and efficiency (right axis) in one figure."""
    lines: list[Line] = []
    for color, (name, report) in enumerate(zip(curve_names(reports), reports)):
        points = report.curve.points
        rates = points_of(points, lambda point: point.throughput)
        shares = points_of(points, lambda point: point.efficiency)
        if rates and shares:
            lines.append(make_line(name, rates, color, what="throughput"))
            lines.append(make_line(name, shares, color, "second", what="efficiency", on_right=True))
    if not lines:
        return None
    labels = dict.fromkeys(report.curve.rate_label for report in reports)
    return Figure(
        name="both",
        title="Throughput and efficiency",
        x=DEVICES,
        y=Axis(" or ".join(labels)),
        lines=tuple(lines),
        right=EFFICIENCY,
    )
