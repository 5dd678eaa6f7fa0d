"""Tables of the evidence for a proposal: settings, speed, time and resources, requested scale."""

from collections.abc import Sequence

from scalewise.analysis.advise.requested_scale import RequestedScale, requested_scale
from scalewise.analysis.measure import Estimate, Point
from scalewise.analysis.measure.curve import ONE_EPOCH
from scalewise.errors import cut
from scalewise.report.curve_report import CurveReport
from scalewise.report.figures.series import choose_unit
from scalewise.report.tables import (
    NONE,
    Table,
    integer,
    interval,
    make_table,
    mebibytes,
    percent,
    point_error,
    relative_error,
    value,
)
from scalewise.report.text.measurement import has_throughput
from scalewise.report.text.method import list_values
from scalewise.report.text.spending import cost_heading

MAX_NAME, MAX_HEADER = 80, 40
"""Longer names of curves are cut, in titles and in headers."""
MAX_BESIDE = 3
"""The settings of more curves do not fit beside each other."""
MIN_HALVED, MAX_HALF, MAX_WORD = 6, 40, 24
"""Tables of so many pairs, with values and words of so few characters, have two columns of pairs.
"""
SHORT_TIME_UNITS = (("h", 3600.0), ("min", 60.0), ("s", 1.0))


def settings_table(reports: Sequence[CurveReport]) -> Table | None:
    """Return what was run, one column for each curve, or for many curves one in all; None if that
    is not recorded.
    """
    settings: list[dict[str, str]] = []
    for report in reports:
        curve = report.curve
        values = {"scaling": curve.scaling, "work": curve.work, **curve.conditions, **curve.where}
        batches = sorted({p.global_batch for p in curve.points if p.global_batch})
        if "global_batch" not in values and batches:
            ends = dict.fromkeys((batches[0], batches[-1]))
            values["global_batch"] = " to ".join(f"{batch:,}" for batch in ends)
        settings.append({key: str(v) for key, v in values.items() if v not in (None, "", False)})
    keys = dict.fromkeys(key for values in settings for key in values)
    if not keys:
        return None
    if len(reports) > MAX_BESIDE:
        merged = [(key, list_values(v[key] for v in settings if key in v)) for key in keys]
        rows = tuple((key.replace("_", " "), text) for key, text in merged)
        return Table("Settings of the measured runs", ("setting", "values"), rows)
    if len(reports) == 1:
        pairs = [(key.replace("_", " "), settings[0][key]) for key in keys]
        return pair_table("Settings of the measured runs", ("setting", "value"), pairs)
    header = ("setting", *(cut(report.curve.name, MAX_HEADER) for report in reports))
    beside = tuple((key.replace("_", " "), *(v.get(key, NONE) for v in settings)) for key in keys)
    return Table("Settings of the measured runs", header, beside)


def pair_table(title: str, header: tuple[str, str], rows: Sequence[tuple[str, str]]) -> Table:
    """Return a table of names with values; if all values are short, in two columns of pairs."""
    longest = max((len(text) for _, text in rows), default=0)
    word = max((len(word) for _, text in rows for word in text.split()), default=0)
    if len(rows) < MIN_HALVED or longest > MAX_HALF or word > MAX_WORD:
        return Table(title, header, tuple(rows))
    half = -(-len(rows) // 2)
    right = [*rows[half:], ("", "")][:half]
    return Table(title, (*header, *header), tuple(a + b for a, b in zip(rows[:half], right)))


def speed_table(report: CurveReport) -> Table:
    """Return throughput, speedup, efficiency and memory for each number of devices."""
    curve, by_time = report.curve, not has_throughput(report.curve)
    basis = "by complete time" if by_time else "by throughput of the training steps"
    title = f"{cut(curve.name, MAX_NAME)}: speedup and efficiency {basis}"
    return make_table(title, curve.points, [
        ("devices", lambda p: integer(p.devices)),
        ("nodes", lambda p: integer(p.nodes)),
        ("runs", lambda p: integer(_runs(p))),
        (curve.rate_unit, lambda p: value(p.throughput)),
        ("±", lambda p: relative_error(p.throughput)),
        ("speedup", lambda p: value(p.speedup_time if by_time else p.speedup)),
        ("efficiency", lambda p: percent(p.efficiency)),
        ("± points", lambda p: point_error(p.efficiency)),
        ("MFU", lambda p: percent(p.mfu)),
        ("memory MiB", lambda p: mebibytes(p.memory)),
        ("global batch", lambda p: integer(p.global_batch)),
    ], hide_unknown=True)  # fmt: skip


def _runs(point: Point) -> int | None:
    """Return how often a point was measured; None for a table without repeats."""
    estimate = point.throughput or point.time
    return estimate.count if estimate and (point.steps or estimate.count > 1) else None


def time_table(report: CurveReport) -> Table:
    """Return the time of the job, its device-hours and node-hours, and its cost at a price."""
    curve, rate = report.summary.curve, report.rate
    longest = max(point.time.value for point in curve.points if point.time)
    unit, size = choose_unit([longest], SHORT_TIME_UNITS)
    base = curve.baseline
    job = ONE_EPOCH if curve.work == ONE_EPOCH else "the complete job"
    if curve.full_run:
        job = f"the full run of {curve.full_run.text}"
    elif curve.unit_of_work:
        job = f"1 {curve.unit_of_work}, without start-up"

    def efficiency(point: Point) -> str:
        growth = point.devices / base.devices
        return percent(point.speedup_time * (1 / growth) if point.speedup_time else None)

    def hours(point: Point, count: int | None) -> Estimate | None:
        return point.time * (count / 3600) if point.time and count else None

    def cost(point: Point) -> str:
        device_hours = hours(point, point.devices)
        return value(rate.cost(device_hours) if rate and device_hours else None)

    def scaled(time: Estimate | None) -> str:
        return value(time * (1 / size) if time else None)

    return make_table(f"{cut(curve.name, MAX_NAME)}: time of {job}", curve.points, [
        ("devices", lambda p: integer(p.devices)),
        ("nodes", lambda p: integer(p.nodes)),
        (f"time {unit}", lambda p: scaled(p.time)),
        ("±", lambda p: relative_error(p.time)),
        ("speedup", lambda p: value(p.speedup_time)),
        ("efficiency", efficiency),
        ("device-hours", lambda p: value(hours(p, p.devices))),
        ("node-hours", lambda p: value(hours(p, p.nodes))),
        (cost_heading(rate), cost),
    ], hide_unknown=True)  # fmt: skip


def request_table(report: CurveReport, scale: RequestedScale) -> Table:
    """Return the measured numbers of devices beside the one that is requested and predicted."""
    curve = report.summary.curve
    counts = sorted({scale.devices, *(point.devices for point in curve.points)})
    rows = [scale if n == scale.devices else requested_scale(curve, n) for n in counts]
    title = f"{cut(curve.name, MAX_NAME)}: requested beside measured"
    rate = report.rate

    def cost(scale: RequestedScale) -> str:
        return value(rate.cost(scale.device_hours) if rate and scale.device_hours else None)

    return make_table(title, rows, [
        ("devices", lambda s: integer(s.devices)),
        ("nodes", lambda s: integer(s.nodes)),
        ("basis", lambda s: "measured" if s.basis == "measured" else "predicted"),
        (curve.rate_unit, lambda s: value(s.throughput)),
        ("90 % interval", lambda s: interval(s.throughput)),
        ("efficiency", lambda s: percent(s.efficiency)),
        ("device-hours", lambda s: value(s.device_hours)),
        ("node-hours", lambda s: value(s.node_hours)),
        (cost_heading(rate), cost),
        ("", lambda s: "requested" if s is scale else ""),
    ], hide_unknown=True)  # fmt: skip
