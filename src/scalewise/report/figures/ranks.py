"""Are all ranks equally fast? A heat map of rank × time."""

from scalewise.analysis.explain.rank_times import RankRow
from scalewise.analysis.number_format import format_count
from scalewise.report.curve_report import CurveReport
from scalewise.report.figures import Axis, Figure, HeatMap
from scalewise.report.figures.series import TIME_UNITS, choose_unit
from scalewise.report.text.explanation import rank_speed_sentence

NOISE_PERCENT = 10.0
"""Lags up to this are shown in pale colors: single steps differ that much by chance."""


def ranks(report: CurveReport) -> Figure | None:
    """Return how much longer each rank works than the typical rank, over the training: on the
    largest number of devices with a straggler, or else on the largest number.
    """
    points = report.explanation.points if report.explanation else ()
    matrices = [(point.heat, point.devices) for point in points if point.heat]
    if not matrices:
        return None
    heat, devices = max(matrices, key=lambda pair: (pair[0].is_straggler, pair[1]))
    unit, size = choose_unit(heat.times, TIME_UNITS)
    rows = heat.rows
    several = " (rows of several ranks: the slowest)" if heat.ranks_per_row > 1 else ""
    return Figure(
        name="ranks",
        title=f"{report.curve.name}: ranks on {format_count(devices)}",
        x=Axis(
            f"{unit} of training",
            categories=tuple(f"{time / size:.3g}" for time in heat.times[:-1]),
        ),
        y=Axis(f"rank{several}", categories=tuple(map(_row_name, rows))),
        heat=HeatMap(
            tuple(tuple(None if lag is None else 100 * lag for lag in row.lag) for row in rows),
            "% slower than the typical rank",
            middle=0.0,
            least_reach=NOISE_PERCENT,
        ),
        description=rank_speed_sentence(heat) or "",
    )


def _row_name(row: RankRow) -> str:
    return str(row.first) if row.first == row.last else f"{row.first}–{row.last}"
