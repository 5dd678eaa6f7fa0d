"""The catalog of devices, links and prices: as tables, and as JSON."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from scalewise.analysis.number_format import format_count
from scalewise.catalog.hardware import PRECISIONS, Device, Row
from scalewise.report.formats import dump_json, plain
from scalewise.report.tables import NONE, ColumnOf, Section, Shown, make_table, number, percent

Columns = dict[str, Callable[[Any], str]]


def _peak_tflops(precision: str) -> Callable[[Device], str]:
    return lambda row: number((flops := row.peak.get(precision)) and flops / 1e12)


COLUMNS: dict[str, Columns] = {
    "devices": {
        "device": lambda row: row.name,
        "vendor": lambda row: row.vendor or NONE,
        "GB": lambda row: number(row.memory and row.memory / 1e9),
        "GB/s": lambda row: number(row.bandwidth and row.bandwidth / 1e9),
        **{f"{name} TFLOP/s": _peak_tflops(name) for name in PRECISIONS},
        "rated W": lambda row: number(row.power),
    },
    "links": {
        "link": lambda row: row.name,
        "GB/s each way": lambda row: number(row.bandwidth and row.bandwidth / 1e9),
        "latency µs": lambda row: number(row.latency and row.latency * 1e6),
    },
    "prices": {
        "price": lambda row: row.name,
        "device": lambda row: row.device,
        "devices": lambda row: str(row.devices),
        "region": lambda row: row.region or NONE,
        "per hour": lambda row: number(row.hour),
        "per device-hour": lambda row: number(row.hour / row.devices),
        "spot per device-hour": lambda row: number(row.spot and row.spot / row.devices),
        "currency": lambda row: row.currency,
        "preempted per month": lambda row: percent(row.interruption),
    },
}
"""The columns of each kind of row; every table then ends with its date and its source."""
SHOWN: dict[str, Shown] = {
    **{f"{name} TFLOP/s": "all" for name in PRECISIONS},
    **dict.fromkeys(("vendor", "region", "per hour", "preempted per month", "date"), "all"),
    **dict.fromkeys(("fp32 TFLOP/s", "fp16 TFLOP/s"), "wide"),
    **dict.fromkeys(("device", "devices", "currency", "source"), "wide"),
    "bf16 TFLOP/s": "default",
}
"""When a column is shown, if not always; the first column always is."""


def sections(rows_by_kind: Mapping[str, Sequence[Row]]) -> list[Section]:
    """Return a section for each kind of row (devices, links, prices) that has rows."""
    return [_section(kind, rows) for kind, rows in rows_by_kind.items() if rows]


def _section(kind: str, rows: Sequence[Row]) -> Section:
    """Return the table of one kind of row, below a numbered list of its sources."""
    sources = list(dict.fromkeys(row.source for row in rows))
    columns: Columns = {
        **COLUMNS[kind],
        "date": lambda row: row.date,
        "source": lambda row: f"[{sources.index(row.source) + 1}]",
    }
    declared: list[ColumnOf[Any]] = [
        (heading, cell, SHOWN.get(heading, "default")) for heading, cell in columns.items()
    ]
    return Section(
        title=format_count(len(rows), kind.removesuffix("s")),
        lines=tuple(f"[{index}] {source}" for index, source in enumerate(sources, 1)),
        tables=(make_table(kind.capitalize(), rows, declared, hide_unknown=True),),
    )


def as_json(rows_by_kind: Mapping[str, Sequence[Row]]) -> str:
    """Return the rows as JSON (docs/reference/json.md), each price also per device-hour."""
    document = {
        kind: [{"name": row.name, **plain(row)} for row in rows]
        for kind, rows in rows_by_kind.items()
    }
    for price in document.get("prices", ()):
        price["per_device_hour"] = price["hour"] / price["devices"]
    return dump_json(document)
