"""The catalog of devices, links and prices: as tables, and as JSON."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from scalewise.analysis.number_format import format_count
from scalewise.catalog.hardware import PRECISIONS, Device, Price, Row
from scalewise.report.formats import SCHEMA, plain
from scalewise.report.tables import NONE, Section, Table, number, percent

Columns = dict[str, Callable[[Any], str]]


def _scaled(value: float | None, unit: float) -> str:
    return number(None if value is None else value / unit)


def _peak(precision: str) -> Callable[[Device], str]:
    return lambda row: _scaled(row.peak.get(precision), 1e12)


COLUMNS: dict[str, Columns] = {
    "devices": {
        "device": lambda row: row.name,
        "vendor": lambda row: row.vendor or NONE,
        "GB": lambda row: _scaled(row.memory, 1e9),
        "GB/s": lambda row: _scaled(row.bandwidth, 1e9),
        **{f"{name} TFLOP/s": _peak(name) for name in PRECISIONS},
        "most W": lambda row: _scaled(row.power, 1),
    },
    "links": {
        "link": lambda row: row.name,
        "GB/s each way": lambda row: _scaled(row.bandwidth, 1e9),
        "latency µs": lambda row: _scaled(row.latency, 1e-6),
    },
    "prices": {
        "price": lambda row: row.name,
        "device": lambda row: row.device,
        "devices": lambda row: str(row.devices),
        "region": lambda row: row.region or NONE,
        "per hour": lambda row: number(row.hour),
        "per device-hour": lambda row: number(row.hour / row.devices),
        "spot per device-hour": lambda row: _scaled(row.spot, row.devices),
        "currency": lambda row: row.currency,
        "interrupted": lambda row: percent(row.interruption),
    },
}
"""The columns of each kind, before date and source."""


def sections(rows_by_kind: Mapping[str, Sequence[Row]]) -> list[Section]:
    """Return a section for each kind that has rows."""
    return [_section(kind, rows) for kind, rows in rows_by_kind.items() if rows]


def _section(kind: str, rows: Sequence[Row]) -> Section:
    """Return the table of one kind; its sources are numbered lines above it."""
    sources = list(dict.fromkeys(row.source for row in rows))
    columns: Columns = {
        **COLUMNS[kind],
        "date": lambda row: row.date,
        "source": lambda row: f"[{sources.index(row.source) + 1}]",
    }
    cells = [[cell(row) for cell in columns.values()] for row in rows]
    visible = [index for index, column in enumerate(zip(*cells)) if set(column) != {NONE}]
    header = tuple(list(columns)[index] for index in visible)
    body = tuple(tuple(row[index] for index in visible) for row in cells)
    return Section(
        title=format_count(len(rows), kind.removesuffix("s")),
        lines=tuple(f"[{index}] {source}" for index, source in enumerate(sources, 1)),
        tables=(Table(kind.capitalize(), header, body),),
        warnings=(),
    )


def as_json(rows_by_kind: Mapping[str, Sequence[Row]]) -> str:
    """Return the documented JSON shape."""
    kinds = {kind: [_row(row) for row in rows] for kind, rows in rows_by_kind.items()}
    return json.dumps({"schema": SCHEMA, **kinds}, indent=1)


def _row(row: Row) -> dict[str, Any]:
    values = cast(dict[str, Any], plain(row))
    if isinstance(row, Price):
        return {"name": row.name, **values, "per_device_hour": row.hour / row.devices}
    return values
