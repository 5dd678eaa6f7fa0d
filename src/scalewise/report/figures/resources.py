"""What training needs: memory, communication, energy, money."""

from scalewise.analysis.measure.energy import JOULES_PER_UNIT, energy_unit
from scalewise.report.figures import Axis, Figure
from scalewise.report.figures.series import (
    BYTE_UNITS,
    DEVICES,
    Metric,
    Reports,
    choose_unit,
    curve_names,
    make_line,
    metric_figure,
    metric_lines,
    points_of,
)
from scalewise.report.figures.times import job_label


def _values(reports: Reports, metric: Metric) -> list[float]:
    points = [point for report in reports for point in report.curve.points]
    return [estimate.value for point in points if (estimate := metric(point))]


def memory(reports: Reports) -> Figure | None:
    """Return the peak of the fullest device, and what the model takes of it."""
    known = [*_values(reports, lambda p: p.memory), *_values(reports, lambda p: p.held)]
    unit, size = choose_unit(known, BYTE_UNITS)
    lines = metric_lines(reports, lambda p: p.memory and p.memory * (1 / size), what="peak")
    lines += metric_lines(
        reports,
        lambda p: p.held and p.held * (1 / size),
        role="second",
        what="model and optimizer",
    )
    if not lines:
        return None
    return Figure("memory", "Memory", DEVICES, Axis(f"{unit} on the fullest device"), tuple(lines))


def sent_bytes(reports: Reports) -> Figure | None:
    """Return the bytes that the busiest device sends in a step."""
    unit, size = choose_unit(_values(reports, lambda point: point.sent), BYTE_UNITS)
    return metric_figure(
        "sent", "Communicated bytes", f"{unit} sent per step and device", reports,
        lambda point: point.sent and point.sent * (1 / size),
    )  # fmt: skip


def exposed_communication(reports: Reports) -> Figure | None:
    """Return the share of a step in which devices wait for communication."""
    return metric_figure(
        "exposed", "Exposed communication", "exposed share of a step", reports,
        lambda point: point.exposed, percent=True,
    )  # fmt: skip


def energy(reports: Reports) -> Figure | None:
    """Return the energy of the complete job."""
    unit = energy_unit(max(_values(reports, lambda point: point.energy), default=0.0))
    covers = {point.energy_covers for report in reports for point in report.curve.points}
    label = f"{unit}, complete job" + (f" ({covers.pop()})" if len(covers) == 1 else "")
    return metric_figure(
        "energy", "Energy", label.replace(" (None)", ""), reports,
        lambda point: point.energy and point.energy * (1 / JOULES_PER_UNIT[unit]),
    )  # fmt: skip


def cost(reports: Reports) -> Figure | None:
    """Return the cost of the complete job; None without a price."""
    rate = reports[0].rate
    if rate is None:
        return None
    lines = []
    for color, (name, report) in enumerate(zip(curve_names(reports), reports)):
        points = points_of(report.curve.points, lambda point: point.time)
        costs = [(devices, rate.cost(time * (devices / 3600))) for devices, time in points]
        if costs:
            lines.append(make_line(name, costs, color))
    if not lines:
        return None
    label = job_label(rate.currency or "money", [report.curve for report in reports])
    return Figure("cost", "Cost", DEVICES, Axis(label), tuple(lines))
