"""What more devices would give: as sections for people, and as JSON for programs."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scalewise.analysis.measure import Estimate
from scalewise.analysis.predict import PredictedPoint, Prediction
from scalewise.analysis.predict.prediction_text import next_measurement
from scalewise.report.curve_table import (
    Section,
    Table,
    by_devices,
    number,
    percent,
    spread,
    value,
    whole,
)
from scalewise.report.formats import SCHEMA, plain


@dataclass(frozen=True)
class _Row:
    """A measured or predicted number of devices."""

    devices: int
    nodes: int | None
    throughput: Estimate | None
    time: Estimate | None
    what: str
    warnings: tuple[str, ...] = ()


def sections(found: Prediction) -> list[Section]:
    """Return the prediction: the estimates, how they came about, the laws beside them."""
    curve = found.curve
    rows = [*_measured(found), *(_ahead(point) for point in found.points)]
    tables = (
        by_devices(rows, "Measured, and predicted", [
            ("nodes", lambda r: whole(r.nodes)),
            (f"{curve.unit}/s", lambda r: value(r.throughput)),
            ("low", lambda r: _end(r.throughput, "low")),
            ("high", lambda r: _end(r.throughput, "high")),
            ("±", lambda r: spread(r.throughput)),
            ("efficiency", lambda r: percent(_efficiency(found, r))),
            ("complete s", lambda r: value(r.time)),
            ("low", lambda r: _end(r.time, "low")),
            ("high", lambda r: _end(r.time, "high")),
            ("±", lambda r: spread(r.time)),
            ("", lambda r: r.what),
        ]),
        *(_laws(found, metric) for metric in ("throughput", "time")),
    )  # fmt: skip
    rule = f"{curve.scaling} scaling" if curve.scaling else "scaling unknown"
    nodes = f"{curve.devices_per_node} devices per node" if curve.devices_per_node else (
        "devices per node unknown"
    )  # fmt: skip
    lines = [f"{rule}; {nodes}; intervals are 90 %", found.law, *found.sentences]
    shown = tuple(table for table in tables if table.rows)
    return [Section(curve.name, tuple(lines), shown, found.warnings)]


def _measured(found: Prediction) -> list[_Row]:
    asked = {point.devices for point in found.points}
    return [
        _Row(point.devices, point.nodes, point.throughput, point.time, "measured")
        for point in found.curve.points
        if point.devices not in asked
    ]


def _ahead(point: PredictedPoint) -> _Row:
    told = point.reach.partition(";")[0]
    return _Row(point.devices, point.nodes, point.throughput, point.time, told)


def _end(estimate: Estimate | None, name: str) -> str:
    return number(getattr(estimate, name) if estimate else None)


def _efficiency(found: Prediction, row: _Row) -> float | None:
    """Return the efficiency against the baseline, by throughput or else by time."""
    base = found.curve.baseline
    growth = row.devices / base.devices
    if base.throughput and row.throughput:
        return row.throughput.value / base.throughput.value / growth
    if base.throughput or not (base.time and row.time):
        return None
    return base.time.value / row.time.value / growth


def _laws(found: Prediction, metric: str) -> Table:
    counts = [point.devices for point in found.points]
    return Table(
        f"Laws of the {metric}, fitted to the measured points",
        ("law", *(f"on {count}" for count in counts), "error where measured", "formula"),
        tuple(
            (fit.law, *(number(fit.value(count)) for count in counts), percent(fit.error),
             fit.formula)
            for fit in found.laws
            if fit.points.metric == metric
        ),
    )  # fmt: skip


def as_json(found: Prediction, **beside: Any) -> str:
    """Return the documented JSON shape, and what stands beside it under its own name."""
    curve, ahead = found.curve, found.next
    told: dict[str, Any] = {
        "schema": SCHEMA,
        "study": curve.study,
        "where": dict(curve.where),
        "scaling": curve.scaling,
        "devices_per_node": curve.devices_per_node,
        "measured": [point.devices for point in curve.points],
        "law": found.law,
        "sentences": list(found.sentences),
        "points": [_point(point) for point in found.points],
        "next": ahead
        and {**plain(ahead), "shrinks": ahead.shrinks, "says": next_measurement(ahead)},
        "laws": _fits(found),
        "odd": plain(found.outliers),
        "warnings": list(found.warnings),
        "not_correct": list(found.curve.not_correct),
        **beside,
    }
    return json.dumps(told, indent=1)


def _point(point: PredictedPoint) -> dict[str, Any]:
    names = ("devices", "nodes", "throughput", "time", "reach")
    return {name: plain(getattr(point, name)) for name in names}


def _fits(found: Prediction) -> Sequence[dict[str, Any]]:
    return [
        {
            "law": fit.law,
            "metric": fit.points.metric,
            "formula": fit.formula,
            "parameters": plain(fit.parameters),
            "error": plain(fit.error),
            "values": {str(point.devices): plain(fit.value(point.devices))
                       for point in found.points},
        }
        for fit in found.laws
    ]  # fmt: skip
