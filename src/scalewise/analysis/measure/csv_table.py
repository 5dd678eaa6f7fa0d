"""Curves from tables that people wrote: CSV, Excel's exports, Markdown, pasted text."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from scalewise.analysis.measure.curve import (
    ONE_EPOCH,
    RELATIVE_UNIT,
    ScalingCurve,
    compare,
    observed_scaling,
    partly_filled_nodes,
)
from scalewise.analysis.measure.curve_numbers import check_table_options, make_point
from scalewise.analysis.measure.doubt import Doubt
from scalewise.analysis.measure.estimate import Estimate
from scalewise.analysis.measure.point import Point
from scalewise.analysis.measure.table_header import Column, Role
from scalewise.analysis.measure.table_layout import COLUMNS
from scalewise.analysis.measure.table_numbers import Number
from scalewise.analysis.measure.table_reading import Table, TableReading, TableRow, read_table
from scalewise.errors import SpecError

MAX_DISAGREEMENT = 0.05
"""A given speedup may differ by this share, and by rounding, from the computed one."""


def curve_from_csv(
    text: str,
    *,
    name: str,
    source: str | None = None,
    scaling: str | None = None,
    devices_per_node: int | None = None,
    in_order: bool = False,
) -> ScalingCurve:
    """Return the curve of a table as people write them: with commas, tabs, semicolons, bars or
    spaces, and usual titles. ``read_as`` of the curve says how it was read. ``source`` names the
    table in errors. With ``in_order``, rows must be sorted by devices.
    """
    check_table_options(scaling, devices_per_node)
    table = read_table(source or name, text, devices_per_node, in_order=in_order)
    unit = _derive_throughput(table)
    points = []
    by_size = sorted(table.rows, key=_size)
    groups = [list(rows) for _, rows in groupby(by_size, key=_size)]
    for rows in groups:
        points.append(_point_of_rows(table, rows))
    is_epoch = "one epoch" in table.remarks
    curve = ScalingCurve(
        study=name,
        points=tuple(points),
        scaling=scaling or observed_scaling(points),
        work=ONE_EPOCH if is_epoch else None,
        unit=unit or "samples",
        devices_per_node=devices_per_node or _node_size(points),
        read_as=_reading(table, groups),
        warnings=partly_filled_nodes(devices_per_node, (point.devices for point in points)),
    )
    return _with_column_doubts(compare(curve), table, groups)


def _size(row: TableRow) -> tuple[int, int]:
    return row.devices, row.nodes or 0


def _node_size(points: Sequence[Point]) -> int | None:
    """Return the devices of a full node, which is known only if several nodes were used."""
    sizes = [-(-p.devices // p.nodes) for p in points if p.nodes and p.nodes > 1]
    return max(sizes, default=None)


def _derive_throughput(table: Table) -> str | None:
    """Add to each row the throughput that follows from other columns, and return its unit."""
    selection, remarks = table.selection, table.remarks
    has = selection.columns.keys()
    _set_batches(table)
    if "throughput" in has:
        return _unit_of_work(table, "throughput")
    if "throughput_per_device" in has:
        remarks["per device"] = None
        for row in table.rows:
            numbers = row.numbers.get("throughput_per_device", [])
            row.numbers["throughput"] = [number.times(row.devices) for number in numbers]
        return _unit_of_work(table, "throughput_per_device")
    if not has & {"time", "epoch_time", "steps_per_second", "step_time"}:
        remarks["relative"] = None
        for row in table.rows:
            shares = [number.times(row.devices) for number in row.numbers.get("efficiency", [])]
            row.numbers["throughput"] = row.numbers.get("speedup") or shares
        return RELATIVE_UNIT
    if has & {"steps_per_second", "step_time"} and not has & {"time", "epoch_time"}:
        _throughput_of_steps(table)
    return None


def _set_batches(table: Table) -> None:
    """Make efficiencies shares, and batches those of all devices."""
    efficiencies = [n for row in table.rows for n in row.numbers.get("efficiency", [])]
    column = table.selection.first("efficiency")
    largest = max((number.value for number in efficiencies), default=0.0)
    marked = any(number.unit == "%" for number in efficiencies)
    is_percent = marked or largest > 2 or bool(column and column.percent and largest > 1.5)
    for row in table.rows:
        if is_percent and "efficiency" in row.numbers:
            row.numbers["efficiency"] = [n.times(0.01) for n in row.numbers["efficiency"]]
        for number in row.numbers.get("batch_per_device", ()):
            row.numbers.setdefault("global_batch", [number.times(row.devices)])
    if "batch" in table.selection.columns and "global_batch" not in table.selection.columns:
        _take_growing_batch(table)


def _take_growing_batch(table: Table) -> None:
    """Take a batch size that grows with the devices as the global batch."""
    batches = [(row.devices, n.value) for row in table.rows for n in row.numbers.get("batch", ())]
    if len(batches) < len(table.rows) or len({devices for devices, _ in batches}) < 2:
        return
    per_device = [batch / devices for devices, batch in batches]
    if max(per_device) <= (1 + MAX_DISAGREEMENT) * min(per_device):
        table.remarks["growing batch"] = None
        table.selection.columns["global_batch"] = table.selection.columns.pop("batch")
        for row in table.rows:
            row.numbers["global_batch"] = row.numbers.pop("batch")


def _throughput_of_steps(table: Table) -> None:
    """Add to each row the samples per second: steps per second times the global batch."""
    table.remarks["steps"] = None
    for row in table.rows:
        batches = row.numbers.get("global_batch")
        if not batches:
            given = table.selection.first("steps_per_second") or table.selection.first("step_time")
            raise SpecError(
                f'{row.where}: "{given.title if given else "steps"}" needs the samples of a step',
                hint="add a column global batch or batch per GPU",
            )
        batch = batches[0].value
        rates = [number.times(batch) for number in row.numbers.get("steps_per_second", [])]
        times = row.numbers.get("step_time", [])
        row.numbers["throughput"] = rates or [Number(batch / number.value) for number in times]


def _unit_of_work(table: Table, role: Role) -> str | None:
    """Return the unit of work of a rate by its title or its cells."""
    column = table.selection.first(role)
    numbers = [number for row in table.rows for number in row.numbers.get(role, [])]
    units = dict.fromkeys(n.unit for n in numbers if n.unit)
    if len(units) > 1:
        raise SpecError(
            f"{table.source} has throughputs in {' and '.join(map(str, units))}",
            hint="use one unit of work in all rows",
        )
    if units and role in table.selection.columns:
        table.cell_units[role] = str(next(iter(units)))
    return (column.unit if column else None) or next(iter(units), None)


def _point_of_rows(table: Table, rows: Sequence[TableRow]) -> Point:
    """Return the point of one number of devices; its rows are repeats."""

    def estimate(role: Role) -> Estimate | None:
        numbers = [number for row in rows for number in row.numbers.get(role, [])]
        if len(numbers) == 1:
            return Estimate(numbers[0].value, numbers[0].low, numbers[0].high)
        return Estimate.of([number.value for number in numbers]) if numbers else None

    time, epoch_time = estimate("time"), estimate("epoch_time")
    if "time" not in table.selection.columns and epoch_time:
        time = epoch_time
        table.remarks["one epoch"] = None
    samples, batch = estimate("samples"), estimate("global_batch")
    return make_point(
        rows[0].devices,
        rows[0].nodes,
        throughput=estimate("throughput"),
        time=time,
        samples=samples.value if samples else None,
        energy=estimate("energy"),
        epoch_time=epoch_time,
        global_batch=batch.value if batch else None,
    )


def _reading(table: Table, groups: Sequence[Sequence[TableRow]]) -> TableReading | None:
    """Return how the table was read; None if it has the canonical form."""
    layout, selection = table.layout, table.selection
    used, compared, unused = _columns_by_use(table)
    units = {str(role): c[0].unit for role, c in used.items() if c[0].unit}
    counts = [_repeat_count(rows) for rows in groups]
    ignored = sorted([*selection.ignored, *unused], key=lambda column: column.index)
    marks = {selection.mark(column) for columns in used.values() for column in columns}
    reading = TableReading(
        columns={role: ", ".join(map(layout.name, columns)) for role, columns in used.items()},
        units={**table.cell_units, **units},
        delimiter=layout.delimiter,
        decimal_mark="," if "," in marks else ".",
        decimal_rule=selection.mark_rule,
        transposed=layout.transposed,
        repeats=(min(counts), max(counts)),
        remarks=tuple(table.remarks),
        compared=tuple(compared),
        ignored=tuple(map(layout.name, ignored)),
        missing=tuple(table.missing),
        skipped_lines=table.skipped_lines,
        imported=table.imported,
    )
    titles = [column.title.lower() for column in layout.columns]
    plain = TableReading(columns=reading.columns, units=reading.units, delimiter="commas")
    is_canonical = table.plain and reading == plain and set(titles) <= set(COLUMNS)
    return None if is_canonical else reading


def _columns_by_use(table: Table) -> tuple[dict[Role, list[Column]], list[str], list[Column]]:
    """Return the columns from which numbers were taken, the titles of those that were only compared
    with computed numbers, and the columns that were not needed.
    """
    used = {role: columns for role, columns in table.selection.columns.items() if columns}
    unused: list[Column] = []
    needed: dict[Role, bool] = {
        "throughput_per_device": "per device" in table.remarks,
        "steps_per_second": "steps" in table.remarks,
        "step_time": "steps" in table.remarks,
        "batch": False,
    }
    for role, is_needed in needed.items():
        if role in used and not is_needed:
            unused += used.pop(role)
    checks: list[Role] = ["speedup", "efficiency"]
    if "relative" in table.remarks:  # The speedup, or else the efficiency, gave the throughput.
        checks = ["efficiency"] if "speedup" in used else []
    return used, [used.pop(role)[0].title for role in checks if role in used], unused


def _repeat_count(rows: Sequence[TableRow]) -> int:
    values: tuple[Role, ...] = ("throughput", "time", "epoch_time", "speedup", "efficiency")
    return max(sum(len(row.numbers.get(role, ())) for row in rows) for role in values)


def _with_column_doubts(
    curve: ScalingCurve, table: Table, groups: Sequence[Sequence[TableRow]]
) -> ScalingCurve:
    """Return the curve with a doubt where a given speedup or efficiency is not the computed one."""
    if "relative" in table.remarks:
        return curve
    points = list(curve.points)
    for role in ("speedup", "efficiency"):
        column = table.selection.first(role)
        baseline = _mean_number(groups[0], role)
        if column is None:
            continue
        for index, (point, rows) in enumerate(zip(curve.points, groups)):
            given = _mean_number(rows, role)
            if given is None:
                continue
            share = given.value / (baseline.value if baseline else 1.0)
            computed = _computed(curve, point, role)
            slack = MAX_DISAGREEMENT + _rounding(given, baseline) + _point_rounding(groups[0], rows)
            if computed and all(abs(share / value - 1) > slack for value in computed):
                figures = {"column": column.title, "given": given.value, "computed": computed[0],
                           "role": role}  # fmt: skip
                doubt = Doubt("columns disagree", figures, error=abs(math.log(share / computed[0])))
                points[index] = replace(points[index], warnings=(*points[index].warnings, doubt))
    return replace(curve, points=tuple(points))


def _computed(curve: ScalingCurve, point: Point, role: str) -> list[float]:
    """Return the speedups or efficiencies of a point by throughput, time and epoch time."""
    growth = point.devices / curve.baseline.devices if role == "efficiency" else 1.0
    speedups = (point.speedup, point.speedup_time, point.speedup_epoch)
    return [speedup.value / growth for speedup in speedups if speedup]


def _mean_number(rows: Sequence[TableRow], role: Role) -> Number | None:
    numbers = [number for row in rows for number in row.numbers.get(role, [])]
    if not numbers:
        return None
    mean = sum(number.value for number in numbers) / len(numbers)
    return Number(mean, rounding=max(number.rounding for number in numbers))


def _rounding(*numbers: Number | None) -> float:
    """Return the sum of the relative roundings; a speedup of 1 at the baseline is exact."""
    return sum(number.rounding / number.value for number in numbers if number and number.value != 1)


def _point_rounding(*groups: Sequence[TableRow]) -> float:
    """Return the largest relative rounding of the values from which a speedup was computed."""
    roles: tuple[Role, ...] = ("throughput", "time", "epoch_time")
    return max(_rounding(*(_mean_number(rows, role) for rows in groups)) for role in roles)
