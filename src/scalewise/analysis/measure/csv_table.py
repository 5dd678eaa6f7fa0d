"""Curves from numbers that scalewise did not measure: (devices, value) pairs, or a CSV table."""

import csv
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import SupportsFloat, SupportsIndex

from scalewise.analysis.measure.curve import ScalingCurve, compare
from scalewise.analysis.measure.energy import JOULES_PER_UNIT
from scalewise.analysis.measure.estimate import Estimate
from scalewise.analysis.measure.point import Point
from scalewise.errors import SpecError
from scalewise.validate import suggest_name

COLUMNS = ("devices", "throughput", "time", "samples", "energy_kwh")
HEADER_HINT = (
    "the first line is devices,throughput[,time] or devices,time[,samples]; energy_kwh may follow"
)

MAX_VALUE = 1e100
"""The largest accepted value; sums and squares of such values do not overflow."""


def curve_from_numbers(
    throughputs: Iterable[tuple[int, float]] = (),
    *,
    times: Iterable[tuple[int, float]] = (),
    name: str = "curve",
    scaling: str | None = None,
    devices_per_node: int | None = None,
    samples: Iterable[tuple[int, float]] = (),
    energies: Iterable[tuple[int, float]] = (),
) -> ScalingCurve:
    """Return the curve of (devices, value) pairs, in samples per second, seconds, samples and kWh.

    >>> curve = curve_from_numbers([(1, 240.0), (2, 464.0)], scaling="weak")
    >>> round(curve.points[1].efficiency.value, 3)
    0.967
    """
    columns = {
        "throughput": _checked_column("throughput", throughputs),
        "time": _checked_column("time", times),
        "samples": _checked_column("samples", samples),
        "energy": _checked_column("energy", energies),
    }
    if scaling not in (None, "weak", "strong"):
        raise SpecError(
            f"scaling must be weak or strong, got {scaling!r}", hint="leave it out if unknown"
        )
    if devices_per_node is not None and devices_per_node < 1:
        raise SpecError(
            f"devices per node must be at least 1, got {devices_per_node}",
            hint="leave it out if unknown",
        )
    device_counts = sorted({*columns["throughput"], *columns["time"]})
    if not device_counts:
        raise SpecError("a curve needs at least one number", hint=HEADER_HINT)
    points = []
    for devices in device_counts:
        nodes = -(-devices // devices_per_node) if devices_per_node else None  # Rounded up.
        points.append(_point(devices, nodes, *(column.get(devices) for column in columns.values())))
    curve = ScalingCurve(
        study=name, points=tuple(points), scaling=scaling, devices_per_node=devices_per_node
    )
    return compare(curve)  # Adds speedup and efficiency relative to the first point.


def _point(
    devices: int,
    nodes: int | None,
    rate: float | None,
    seconds: float | None,
    samples: float | None,
    kwh: float | None,
) -> Point:
    if rate is None and seconds and samples:
        rate = samples / seconds
    joules = kwh * JOULES_PER_UNIT["kWh"] if kwh else None
    watts = joules / (seconds * devices) if joules and seconds else None
    return Point(
        devices=devices,
        nodes=nodes,
        throughput=Estimate(rate) if rate else None,
        throughput_per_device=Estimate(rate / devices) if rate else None,
        time=Estimate(seconds) if seconds else None,
        samples=round(samples) if samples else None,
        energy=Estimate(joules) if joules else None,
        energy_covers="as given" if joules else None,
        power=Estimate(watts) if watts else None,
    )


def _checked_column(name: str, pairs: Iterable[tuple[int, float]]) -> dict[int, float]:
    column: dict[int, float] = {}
    for devices, value in pairs:
        if not _is_number(devices) or devices != int(devices) or devices < 1:
            raise SpecError(
                f"devices must be a whole number from 1 up, got {devices!r}",
                hint="for example (8, 1668.0)",
            )
        if devices in column:
            raise SpecError(
                f"devices = {devices} appears twice", hint="keep one row per number of devices"
            )
        if not _is_number(value) or not 0 < value <= MAX_VALUE:
            limit = f" and at most {MAX_VALUE:g}" if _is_number(value) and value > 0 else ""
            raise SpecError(
                f"{name} on {devices} devices must be a number above 0{limit}, got {value!r}",
                hint="leave a point out where it is not known",
            )
        column[int(devices)] = float(value)
    return column


def _is_number(value: object) -> bool:
    """Say whether a value is a finite number of a Python or numpy type."""
    return (
        isinstance(value, (SupportsFloat, SupportsIndex))
        and not isinstance(value, (bool, str))
        and math.isfinite(float(value))
    )


def curve_from_csv(
    text: str,
    *,
    name: str,
    source: str | None = None,
    scaling: str | None = None,
    devices_per_node: int | None = None,
    in_order: bool = False,
) -> ScalingCurve:
    """Return the curve of a table with a header line; lines that begin with ``#`` are comments.
    ``source`` names the table in errors. With ``in_order``, rows must be sorted by devices.
    """
    source = source or name
    rows = list(_data_lines(source, text))
    if not rows:
        raise SpecError(f"{source} is empty", hint=HEADER_HINT)
    header = [title.lower() for title in rows[0][1]]
    _check_header(source, header)
    table: dict[int, dict[str, float]] = {}
    for where, cells in rows[1:]:
        row = _row(where, header, cells)
        devices = int(row.pop("devices"))
        if devices in table:
            raise SpecError(
                f"{where}: devices = {devices} appears twice",
                hint="keep one row per number of devices",
            )
        if in_order and table and devices < max(table):
            raise SpecError(
                f"{where}: {devices} devices come after {max(table)}",
                hint="sort the rows, from few devices to many",
            )
        table[devices] = row
    if not table:
        raise SpecError(f"{source} has a header and no rows", hint=HEADER_HINT)

    def pairs(column: str) -> list[tuple[int, float]]:
        return [(devices, row[column]) for devices, row in table.items() if column in row]

    return curve_from_numbers(
        pairs("throughput"),
        times=pairs("time"),
        samples=pairs("samples"),
        energies=pairs("energy_kwh"),
        name=name,
        scaling=scaling,
        devices_per_node=devices_per_node,
    )


def _data_lines(source: str, text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the location (``FILE, line 3``) and the cells of each line that is no comment."""
    for number, line in enumerate(text.lstrip("\ufeff").splitlines(), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            where = f"{source}, line {number}"
            try:
                yield where, [cell.strip() for cell in next(csv.reader([line]))]
            except csv.Error as bad:
                raise SpecError(f"{where}: {bad}", hint=HEADER_HINT) from bad


def _check_header(source: str, header: Sequence[str]) -> None:
    # A nearly right title such as "n_devices" passes here and gets its own error below.
    if not any(part in title for title in header for part in ("device", *COLUMNS[1:])):
        raise SpecError(f"{source} is neither a study's folder nor a table", hint=HEADER_HINT)
    for title in header:
        if any(separator in title for separator in ";\t|"):
            raise SpecError(f"{source} is not separated by commas", hint=HEADER_HINT)
        if title not in COLUMNS:
            hint = suggest_name(title, COLUMNS) or HEADER_HINT
            raise SpecError(f"{source} has an unknown column {title!r}", hint=hint)
        if header.count(title) > 1:
            raise SpecError(f"{source} has the column {title!r} twice", hint=HEADER_HINT)
    if "devices" not in header or not {"throughput", "time"} & set(header):
        raise SpecError(f"{source} has only the columns {', '.join(header)}", hint=HEADER_HINT)


def _row(where: str, header: Sequence[str], cells: Sequence[str]) -> dict[str, float]:
    """Return the numbers of one line by column; empty cells are omitted."""
    if len(cells) != len(header):
        raise SpecError(f"{where}: {len(cells)} cells under {len(header)} columns")
    row = {title: _parse_number(where, title, cell) for title, cell in zip(header, cells) if cell}
    if "devices" not in row or not {"throughput", "time"} & set(row):
        raise SpecError(f"{where}: devices and throughput or time are needed", hint=HEADER_HINT)
    return row


def _parse_number(where: str, title: str, cell: str) -> float:
    try:  # Unlike float(), refuse digits of other scripts, and 1_000.
        value = float(cell if cell.isascii() and "_" not in cell else "nan")
    except ValueError:
        value = math.nan
    if title == "devices" and not value.is_integer():
        raise SpecError(f"{where}: devices must be a whole number, got {cell!r}", hint=HEADER_HINT)
    if not math.isfinite(value) or value <= 0:
        raise SpecError(
            f"{where}: {title} must be a number above 0, got {cell!r}",
            hint="leave a cell empty where the number is not known",
        )
    return value
