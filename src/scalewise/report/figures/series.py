"""Lines of metrics against devices, and the names and units that figures share."""

from collections.abc import Callable, Iterable, Sequence

from scalewise.analysis.measure import Estimate, Point
from scalewise.report.curve_report import CurveReport
from scalewise.report.figures import Axis, Figure, Line, Role

Reports = Sequence[CurveReport]
Metric = Callable[[Point], Estimate | None]
IDEAL = "ideal"
PREDICTED = "predicted"
CHECKED = "predicted from fewer devices"
DEVICES = Axis("devices", log=True, counts=True)
TIME_UNITS = (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0))
BYTE_UNITS = (("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10))


def curve_names(reports: Reports) -> list[str]:
    """Return a name for each curve: its settings alone if all curves are of one study, and with the
    source if names are equal.
    """
    names = [report.curve.name for report in reports]
    settings = [
        ", ".join(f"{key} {value}" for key, value in report.curve.where.items())
        for report in reports
    ]
    if len({report.curve.study for report in reports}) == 1 and len(set(settings)) == len(reports):
        return settings if len(reports) > 1 else names
    return [
        f"{name} ({report.source})" if names.count(name) > 1 else name
        for name, report in zip(names, reports)
    ]


def points_of(points: Iterable[Point], metric: Metric) -> list[tuple[int, Estimate]]:
    """Return devices and estimate of each point whose metric is known."""
    return [(point.devices, estimate) for point in points if (estimate := metric(point))]


def make_line(
    curve: str,
    points: Sequence[tuple[float, Estimate]],
    color: int,
    role: Role = "measured",
    *,
    what: str = "",
    on_right: bool = False,
) -> Line:
    """Return a line through estimates of a curve, with their intervals if any is known; ``what`` is
    what it shows, if that is not what was measured.
    """
    has_intervals = any(estimate.low is not None for _, estimate in points)
    return Line(
        name=f"{curve}: {what}" if what else curve,
        x=tuple(x for x, _ in points),
        y=tuple(estimate.value for _, estimate in points),
        low=tuple(estimate.low for _, estimate in points) if has_intervals else (),
        high=tuple(estimate.high for _, estimate in points) if has_intervals else (),
        color=color,
        role=role,
        on_right=on_right,
        curve=curve,
        what=what or "measured",
    )


def metric_lines(
    reports: Reports, metric: Metric, *, role: Role = "measured", what: str = ""
) -> list[Line]:
    """Return a line for each curve on which the metric is known."""
    lines = []
    for color, (name, report) in enumerate(zip(curve_names(reports), reports)):
        if points := points_of(report.curve.points, metric):
            lines.append(make_line(name, points, color, role, what=what))
    return lines


def metric_figure(name: str, title: str, label: str, reports: Reports, metric: Metric,
                  *, percent: bool = False) -> Figure | None:  # fmt: skip
    """Return a metric against devices, one line for each curve; None where it is unknown."""
    lines = metric_lines(reports, metric)
    if not lines:
        return None
    return Figure(name, title, DEVICES, Axis(label, percent=percent), tuple(lines))


def choose_unit(
    values: Iterable[float], units: Sequence[tuple[str, float]], least: float = 2.0
) -> tuple[str, float]:
    """Return the largest unit of which the largest value has at least ``least``, with its size.

    >>> choose_unit([5.0, 7300.0], TIME_UNITS)
    ('hours', 3600.0)
    """
    largest = max(values, default=0.0)
    return next(((unit, size) for unit, size in units if largest >= least * size), units[-1])
