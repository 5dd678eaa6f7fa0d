"""The sections and tables of measured curves; ``formats`` renders them."""

from collections.abc import Callable, Sequence
from functools import partial

from scalewise.analysis.measure import Estimate, Point, ScalingCurve, condition_differences
from scalewise.analysis.measure.curve import time_efficiency
from scalewise.analysis.measure.energy import JOULES_PER_UNIT, energy_unit
from scalewise.analysis.measure.mfu import flops_unit
from scalewise.analysis.measure.point import Column, TableName, columns_of
from scalewise.record.schema import in_order_of_life
from scalewise.report.tables import (
    NONE,
    ColumnOf,
    Section,
    Table,
    columns_by_key,
    integer,
    mebibytes,
    number,
    percent,
    point_error,
    relative_error,
    shows_interval,
    table_by_devices,
    value,
    warnings_of,
)
from scalewise.report.text.doubts import alert_lines, note_texts, warning_text
from scalewise.report.text.measurement import (
    acceleration_lines,
    curve_lines,
    has_efficiency,
    has_throughput,
)

MAX_CURVES_BESIDE = 3
"""Up to this many curves are compared in columns of one table; more curves in its rows."""
TOPICS = ("scaling", "time", "spans", "operations", "energy", "work")
"""What the tables of a curve are about."""
Cell = Callable[[Point], str]


def sections(curves: Sequence[ScalingCurve]) -> list[Section]:
    """Return a section for each curve, then sections that compare curves and kinds of device."""
    all_sections = [_section(curve) for curve in curves]
    if len(curves) > 1:
        all_sections.append(side_by_side(curves))
    if acceleration := acceleration_section(curves):
        all_sections.append(acceleration)
    return all_sections


def _section(curve: ScalingCurve) -> Section:
    tables = tuple(tables_by_topic(curve).values())
    return Section(
        title=curve.name,
        lines=tuple(curve_lines(curve, intervals=shows_interval(tables))),
        tables=tables,
        warnings=(*note_texts(curve.warnings), *warnings_of(curve.points)),
        alerts=tuple(alert_lines(curve.doubts)),
    )


def tables_by_topic(curve: ScalingCurve, topics: Sequence[str] = TOPICS) -> dict[str, Table]:
    """Return the tables of one curve that have values, by what they are about."""
    make: dict[str, Callable[[], Table]] = {
        "scaling": lambda: _scaling_table(curve),
        "time": lambda: table_by_devices(curve.points, "Time", [
            ("epoch time s", lambda p: value(p.epoch_time)),
            ("first epoch s", lambda p: value(p.first_epoch_time), "all"),
            ("complete time s", lambda p: value(p.time)),
            ("±", lambda p: relative_error(p.time)),
            ("speedup (epoch time)", lambda p: value(p.speedup_epoch), "all"),
            ("speedup (complete time)", lambda p: value(p.speedup_time),
             "wide" if has_throughput(curve) else "all"),
            ("efficiency (complete time)", partial(_time_efficiency, curve), "all"),
            ("saved vs previous", lambda p: percent(p.saved_previous), "all"),
            ("saved vs baseline", lambda p: percent(p.saved_baseline)),
            ("overhead", lambda p: percent(p.overhead)),
            ("regime", lambda p: p.regime or NONE, "all"),
            *_declared("time"),
        ]),
        "spans": lambda: table_by_devices(
            curve.points,
            "Where the complete time went, in seconds",
            columns_by_key(
                in_order_of_life(name for p in curve.points for name in p.complete),
                lambda name, p: value(p.complete.get(name)),
            ),
            only_all=True,
        ),
        "operations": lambda: table_by_devices(
            curve.points,
            "Operations of the model",
            _flops_columns(curve.points),
            only_all=not any(point.mfu for point in curve.points),
        ),
        "energy": lambda: table_by_devices(curve.points, "Energy", _energy_columns(curve.points)),
        "work": lambda: table_by_devices(curve.points, "Work, memory, quality", [
            *_declared("work"), *_declared("memory"), *_declared("quality"),
        ]),
    }  # fmt: skip
    tables = {topic: make[topic]() for topic in topics}
    return {topic: table for topic, table in tables.items() if len(table.header) > 1}


def _scaling_table(curve: ScalingCurve) -> Table:
    """Return throughput, speedup and efficiency; by complete time if there is no throughput."""
    title, by_time = "Speed", not has_throughput(curve)
    if has_efficiency([curve]):
        title = f"Scaling, by {'complete time' if by_time else 'throughput'}"
    several_nodes = any(point.nodes and point.nodes > 1 for point in curve.points)
    return table_by_devices(curve.points, title, [
        ("nodes", lambda p: integer(p.nodes), "default" if several_nodes else "all"),
        ("runs", lambda p: integer(  # Unknown if the curve comes from a table without repeats.
            e.count if (e := p.throughput or p.time) and (p.steps or e.count > 1) else None
        ), "wide"),
        (curve.rate_unit, lambda p: value(p.throughput)),
        ("±", lambda p: relative_error(p.throughput)),
        ("per device", lambda p: value(p.throughput_per_device), "all"),
        ("ideal", lambda p: value(p.ideal), "all"),
        ("speedup", lambda p: value(p.speedup_time if by_time else p.speedup)),
        ("efficiency", lambda p: percent(p.efficiency)),
        ("±", lambda p: point_error(p.efficiency)),
        ("gain per doubling", lambda p: percent(p.gain)),
        ("added", lambda p: number(p.gain_absolute), "all"),
        ("serial fraction", lambda p: percent(p.serial_fraction), "all"),
        ("acceleration", lambda p: value(p.acceleration)),
        *_declared("scaling"),
    ])  # fmt: skip


def _time_efficiency(curve: ScalingCurve, point: Point) -> str:
    """Return the efficiency by complete time, where ``efficiency`` is not it."""
    return percent(time_efficiency(curve, point)) if has_throughput(curve) else NONE


def _declared(table: TableName) -> list[ColumnOf[Point]]:
    """Return the columns that fields of ``Point`` declare for this table."""
    columns: list[ColumnOf[Point]] = []
    for name, column in columns_of(table):
        columns.append((column.heading, partial(_metric_cell, name, column), column.shown))
        if column.spread:
            columns.append(("±", partial(_spread_cell, name, column), column.shown))
    return columns


def _metric_cell(name: str, column: Column, point: Point) -> str:
    metric = getattr(point, name)
    if column.part:
        metric = (metric or {}).get(column.part)
    if column.format == "text":
        return metric or NONE
    if column.format == "count":
        return integer(metric)
    if column.format == "share":
        return percent(metric)
    return value(metric and metric * column.scale)


def _spread_cell(name: str, column: Column, point: Point) -> str:
    estimate = getattr(point, name)
    return point_error(estimate) if column.format == "share" else relative_error(estimate)


def _flops_columns(points: Sequence[Point]) -> list[ColumnOf[Point]]:
    """Return the columns of FLOP and MFU; their unit depends on the largest value."""
    rates = [point.flops_per_second.value for point in points if point.flops_per_second]
    size, unit = flops_unit(max(rates, default=0.0))
    return [
        ("GFLOP/sample", lambda p: number(p.flops and p.flops / 1e9)),
        (
            f"{unit} per device",
            lambda p: value(p.flops_per_second and p.flops_per_second * (1 / size)),
        ),
        ("±", lambda p: relative_error(p.flops_per_second)),
        ("MFU", lambda p: percent(p.mfu)),
        ("±", lambda p: point_error(p.mfu)),
    ]


def _energy_columns(points: Sequence[Point]) -> list[ColumnOf[Point]]:
    """Return the columns of energy; their unit depends on the largest value."""
    largest = max((p.energy.value for p in points if p.energy), default=0.0)
    unit = energy_unit(largest)
    # If training ran on the processors, their energy is already in the first column.
    shows_hosts = any(p.energy_covers != "processors" for p in points if p.energy_hosts)

    def in_unit(energy: Estimate | None) -> str:
        return value(energy and energy * (1 / JOULES_PER_UNIT[unit]))

    return [
        (unit, lambda p: in_unit(p.energy)),
        ("±", lambda p: relative_error(p.energy)),
        ("W per device", lambda p: value(p.power)),
        (
            "J per sample",
            lambda p: number(p.energy.value / p.samples if p.energy and p.samples else None),
        ),
        (f"hosts' processors {unit}", lambda p: in_unit(p.energy_hosts) if shows_hosts else NONE),
    ]


def side_by_side(curves: Sequence[ScalingCurve]) -> Section:
    """Return a section that compares curves, and says in which conditions they differ."""
    title = "Speed and efficiency" if has_efficiency(curves) else "Speed"
    make_comparison = _columns_per_curve if len(curves) <= MAX_CURVES_BESIDE else _rows_per_curve
    tables = (make_comparison(curves, title), *_communication_tables(curves))
    differences = tuple(map(warning_text, condition_differences(curves)))
    return Section("Side by side", (), tables, differences)


def _columns_per_curve(curves: Sequence[ScalingCurve], title: str) -> Table:
    counts = sorted({point.devices for curve in curves for point in curve.points})
    header, columns = ["devices"], [[str(count) for count in counts]]
    for curve in curves:
        # Reversed: of two points with equal device counts, the first is shown.
        by_count = {point.devices: point for point in reversed(curve.points)}
        cell_functions: dict[str, Cell] = {
            curve.rate_unit: lambda p: value(p.throughput),
            "complete time s": lambda p: value(p.time),
            _efficiency_heading([curve]): lambda p: percent(p.efficiency),
        }
        for name, cell in cell_functions.items():
            cells = [cell(by_count[count]) if count in by_count else NONE for count in counts]
            if any(text != NONE for text in cells):
                header.append(f"{curve.name}: {name}")
                columns.append(cells)
    return Table(title, tuple(header), tuple(zip(*columns)))


def _efficiency_heading(curves: Sequence[ScalingCurve]) -> str:
    by_throughput = any(has_throughput(curve) for curve in curves)
    return "efficiency" if by_throughput else "efficiency (complete time)"


def _rows_per_curve(curves: Sequence[ScalingCurve], title: str) -> Table:
    names, points = _named_points(curves)
    return table_by_devices(points, title, [
        ("curve", lambda p: names[id(p)]),
        (curves[0].rate_unit, lambda p: value(p.throughput)),
        ("±", lambda p: relative_error(p.throughput)),
        ("complete time s", lambda p: value(p.time)),
        (_efficiency_heading(curves), lambda p: percent(p.efficiency)),
        ("accuracy", lambda p: percent(p.accuracy)),
    ])  # fmt: skip


def _named_points(curves: Sequence[ScalingCurve]) -> tuple[dict[int, str], list[Point]]:
    """Return a dict from ``id(point)`` to the curve's name, and all points sorted by devices."""
    names = {id(point): curve.name for curve in curves for point in curve.points}
    return names, sorted((p for c in curves for p in c.points), key=lambda p: p.devices)


def acceleration_section(curves: Sequence[ScalingCurve]) -> Section | None:
    """Return how much faster one kind of device is than another; None for a single kind."""
    points = [point for curve in curves for point in curve.points]
    baselines = {point.accelerated_from for point in points if point.acceleration}
    if not baselines:
        return None
    names, _ = _named_points(curves)
    compared = [point for point in points if point.acceleration or point.device_label in baselines]
    table = table_by_devices(compared, "Kinds of devices", [
        ("curve", lambda p: names[id(p)] if len(curves) > 1 else NONE),
        ("device", lambda p: p.device_name or NONE),
        (curves[0].rate_unit, lambda p: value(p.throughput)),
        ("first epoch s", lambda p: value(p.first_epoch_time)),
        ("epoch time s", lambda p: value(p.epoch_time)),
        ("acceleration", lambda p: value(p.acceleration)),
        ("±", lambda p: relative_error(p.acceleration)),
        ("by epoch", lambda p: value(p.acceleration_epoch)),
        ("by first epoch", lambda p: value(p.acceleration_first)),
    ])  # fmt: skip
    return Section("Acceleration", tuple(acceleration_lines(curves)), (table,))


def _communication_tables(curves: Sequence[ScalingCurve]) -> list[Table]:
    """Return a table of memory and communication, or nothing if no point has sent bytes."""
    names, points = _named_points(curves)
    table = table_by_devices(points, "Memory and communication", [
        ("curve", lambda p: names[id(p)]),
        (curves[0].rate_unit, lambda p: value(p.throughput)),
        ("memory MiB", lambda p: mebibytes(p.memory)),
        ("model MiB", lambda p: mebibytes(p.held)),
        ("sent MiB/step", lambda p: mebibytes(p.sent)),
        ("exposed", lambda p: percent(p.exposed)),
    ])  # fmt: skip
    return [table] if any(point.sent for point in points) else []
