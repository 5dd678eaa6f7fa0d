"""What holds a curve back: efficiency on each number of devices, and what each cause takes."""

from scalewise.analysis.explain.chain import CAUSES
from scalewise.analysis.explain.efficiency_parts import EFFICIENCY, efficiency_parts
from scalewise.record.schema import UNEXPLAINED
from scalewise.report.curve_report import CurveReport
from scalewise.report.figures import Axis, Bars, Figure
from scalewise.report.figures.palette import cause_color


def causes(report: CurveReport) -> Figure | None:
    """Return efficiency and its losses by cause, stacked to 100 %, against devices."""
    points = report.explanation.points if report.explanation else ()
    rows = [(point.devices, parts) for point in points if (parts := efficiency_parts(point))]
    names = [
        name
        for name in (EFFICIENCY, *CAUSES, UNEXPLAINED)
        if any(name in parts for _, parts in rows)
    ]
    if len(names) < 2:  # Without a loss there is no cause.
        return None
    return Figure(
        name="causes",
        title=f"{report.curve.name}: efficiency, and what takes the rest",
        x=Axis("devices", categories=tuple(str(devices) for devices, _ in rows)),
        y=Axis("of ideal scaling", percent=True),
        bars=tuple(
            Bars(name, tuple(parts.get(name, 0.0) for _, parts in rows), cause_color(name))
            for name in names
        ),
    )
