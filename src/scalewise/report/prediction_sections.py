"""A prediction for more devices: as a section, and as JSON."""

from typing import Any

from scalewise.analysis.measure import Point
from scalewise.analysis.predict import PredictedPoint, Prediction
from scalewise.report.formats import dump_json, pick, plain
from scalewise.report.tables import (
    Section,
    Table,
    bound,
    integer,
    make_table,
    number,
    percent,
    relative_error,
    value,
)
from scalewise.report.text.prediction import (
    describe_reach,
    next_measurement,
    prediction_sentences,
    prediction_warnings,
)


def sections(prediction: Prediction) -> list[Section]:
    """Return one section: measured and predicted points, formulas and sentences, fitted laws."""
    curve = prediction.curve
    predicted = {point.devices for point in prediction.points}
    rows: list[Point | PredictedPoint] = [
        *(point for point in curve.points if point.devices not in predicted),
        *prediction.points,
    ]
    tables = (
        make_table("Measured, and predicted", rows, [
            ("devices", lambda r: str(r.devices)),
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
            ("", lambda r: (
                describe_reach(r).partition(";")[0] if isinstance(r, PredictedPoint) else "measured"
            )),
        ], hide_unknown=True),
        *(_law_table(prediction, metric) for metric in ("throughput", "time")),
    )  # fmt: skip
    scaling = f"{curve.scaling} scaling" if curve.scaling else "scaling unknown"
    per_node = curve.devices_per_node
    node_size = f"{per_node} devices per node" if per_node else "devices per node unknown"
    heading = f"{scaling}; {node_size}; intervals are 90 %"
    lines = (heading, prediction.law, *prediction_sentences(prediction))
    shown = tuple(table for table in tables if table.rows)
    return [Section(curve.name, lines, shown, prediction_warnings(prediction))]


def _efficiency(prediction: Prediction, row: Point | PredictedPoint) -> float | None:
    """Return the efficiency against the baseline, from throughput; from time if it has none."""
    base = prediction.curve.baseline
    growth = row.devices / base.devices
    if base.throughput and row.throughput:
        return row.throughput.value / base.throughput.value / growth
    if base.throughput or not (base.time and row.time):  # Never mix the two metrics.
        return None
    return base.time.value / row.time.value / growth


def _law_table(prediction: Prediction, metric: str) -> Table:
    counts = [point.devices for point in prediction.points]
    return Table(
        f"Laws of the {metric}, fitted to the measured points",
        ("law", *(f"on {count}" for count in counts), "mean error of the fit", "formula"),
        tuple(
            (fit.law, *(number(fit.value(count)) for count in counts), percent(fit.error),
             fit.formula)
            for fit in prediction.laws
            if fit.points.metric == metric
        ),
    )  # fmt: skip


def as_json(prediction: Prediction, **extra: Any) -> str:
    """Return the prediction as JSON (docs/reference/json.md), with ``extra`` keys at the end."""
    curve, next_run = prediction.curve, prediction.next
    document = {
        **pick(curve, "study", "where", "scaling", "devices_per_node"),
        "measured": [point.devices for point in curve.points],
        "law": prediction.law,
        "sentences": prediction_sentences(prediction),
        "points": [
            {
                **pick(point, "devices", "nodes", "throughput", "time"),
                "reach": describe_reach(point),
            }
            for point in prediction.points
        ],
        "next": next_run
        and {**plain(next_run), "shrinks": next_run.shrinks, "says": next_measurement(next_run)},
        "laws": [
            {
                "law": fit.law,
                "metric": fit.points.metric,
                **pick(fit, "formula", "parameters", "error"),
                "values": {
                    str(point.devices): fit.value(point.devices) for point in prediction.points
                },
            }
            for fit in prediction.laws
        ],
        "odd": prediction.outliers,
        "warnings": prediction_warnings(prediction),
        "not_correct": curve.not_correct,
        **extra,
    }
    return dump_json(document)
