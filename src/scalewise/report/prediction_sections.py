"""A prediction for more devices: as a section, and as JSON."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scalewise.analysis.measure import Estimate
from scalewise.analysis.predict import PredictedPoint, Prediction
from scalewise.report.formats import SCHEMA, plain
from scalewise.report.tables import (
    Section,
    Table,
    bound,
    integer,
    number,
    percent,
    relative_error,
    table_by_devices,
    value,
)
from scalewise.report.text.prediction import (
    describe_reach,
    next_measurement,
    prediction_sentences,
    prediction_warnings,
)


@dataclass(frozen=True)
class _Row:
    """A measured or predicted number of devices."""

    devices: int
    nodes: int | None
    throughput: Estimate | None
    time: Estimate | None
    basis: str
    warnings: tuple[str, ...] = ()


def sections(prediction: Prediction) -> list[Section]:
    """Return the predicted points, how they were computed, and the fitted laws."""
    curve = prediction.curve
    rows = [*_measured_rows(prediction), *map(_predicted_row, prediction.points)]
    tables = (
        table_by_devices(rows, "Measured, and predicted", [
            ("nodes", lambda r: integer(r.nodes)),
            (f"{curve.unit}/s", lambda r: value(r.throughput)),
            ("low", lambda r: bound(r.throughput, "low")),
            ("high", lambda r: bound(r.throughput, "high")),
            ("±", lambda r: relative_error(r.throughput)),
            ("efficiency", lambda r: percent(_efficiency(prediction, r))),
            ("complete s", lambda r: value(r.time)),
            ("low", lambda r: bound(r.time, "low")),
            ("high", lambda r: bound(r.time, "high")),
            ("±", lambda r: relative_error(r.time)),
            ("", lambda r: r.basis),
        ]),
        *(_law_table(prediction, metric) for metric in ("throughput", "time")),
    )  # fmt: skip
    rule = f"{curve.scaling} scaling" if curve.scaling else "scaling unknown"
    nodes = f"{curve.devices_per_node} devices per node" if curve.devices_per_node else (
        "devices per node unknown"
    )  # fmt: skip
    heading = f"{rule}; {nodes}; intervals are 90 %"
    lines = (heading, prediction.law, *prediction_sentences(prediction))
    shown = tuple(table for table in tables if table.rows)
    return [Section(curve.name, lines, shown, prediction_warnings(prediction))]


def _measured_rows(prediction: Prediction) -> list[_Row]:
    predicted = {point.devices for point in prediction.points}
    return [
        _Row(point.devices, point.nodes, point.throughput, point.time, "measured")
        for point in prediction.curve.points
        if point.devices not in predicted
    ]


def _predicted_row(point: PredictedPoint) -> _Row:
    basis = describe_reach(point).partition(";")[0]
    return _Row(point.devices, point.nodes, point.throughput, point.time, basis)


def _efficiency(prediction: Prediction, row: _Row) -> float | None:
    """Return the efficiency against the baseline, by throughput or else by time."""
    base = prediction.curve.baseline
    growth = row.devices / base.devices
    if base.throughput and row.throughput:
        return row.throughput.value / base.throughput.value / growth
    if base.throughput or not (base.time and row.time):
        return None
    return base.time.value / row.time.value / growth


def _law_table(prediction: Prediction, metric: str) -> Table:
    counts = [point.devices for point in prediction.points]
    return Table(
        f"Laws of the {metric}, fitted to the measured points",
        ("law", *(f"on {count}" for count in counts), "error where measured", "formula"),
        tuple(
            (fit.law, *(number(fit.value(count)) for count in counts), percent(fit.error),
             fit.formula)
            for fit in prediction.laws
            if fit.points.metric == metric
        ),
    )  # fmt: skip


def as_json(prediction: Prediction, **extra: Any) -> str:
    """Return the documented JSON shape, with ``extra`` keys at the end."""
    curve, following = prediction.curve, prediction.next
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "study": curve.study,
        "where": dict(curve.where),
        "scaling": curve.scaling,
        "devices_per_node": curve.devices_per_node,
        "measured": [point.devices for point in curve.points],
        "law": prediction.law,
        "sentences": list(prediction_sentences(prediction)),
        "points": [_point(point) for point in prediction.points],
        "next": following
        and {
            **plain(following),
            "shrinks": following.shrinks,
            "says": next_measurement(following),
        },
        "laws": _fits(prediction),
        "odd": plain(prediction.outliers),
        "warnings": list(prediction_warnings(prediction)),
        "not_correct": list(prediction.curve.not_correct),
        **extra,
    }
    return json.dumps(document, indent=1)


def _point(point: PredictedPoint) -> dict[str, Any]:
    names = ("devices", "nodes", "throughput", "time")
    values = {name: plain(getattr(point, name)) for name in names}
    return {**values, "reach": describe_reach(point)}


def _fits(prediction: Prediction) -> Sequence[dict[str, Any]]:
    return [
        {
            "law": fit.law,
            "metric": fit.points.metric,
            "formula": fit.formula,
            "parameters": plain(fit.parameters),
            "error": plain(fit.error),
            "values": {str(point.devices): plain(fit.value(point.devices))
                       for point in prediction.points},
        }
        for fit in prediction.laws
    ]  # fmt: skip
