"""A prediction for more devices: as a section, and as JSON."""

from typing import Any

from scalewise.analysis.measure import Point
from scalewise.analysis.predict import PredictedPoint, Prediction, law_disagreements
from scalewise.report.formats import dump_json, full_run_values, pick, plain, read_as_values
from scalewise.report.tables import (
    NONE,
    Section,
    Shown,
    Table,
    integer,
    interval,
    make_table,
    number,
    percent,
    relative_error,
    value,
)
from scalewise.report.text.doubts import alert_lines, doubt_values
from scalewise.report.text.measurement import (
    efficiency_basis,
    full_run_line,
    has_throughput,
    two_efficiencies,
)
from scalewise.report.text.prediction import (
    answer_sentences,
    describe_reach,
    inside_text,
    method_sentences,
    next_measurement,
    prediction_notes,
    prediction_sentences,
    prediction_warnings,
)
from scalewise.report.text.read_as import read_as_lines


def sections(prediction: Prediction) -> list[Section]:
    """Return one section: the answers, how they were made, the points, and the fitted laws."""
    curve = prediction.curve
    scaling = f"{curve.scaling} scaling" if curve.scaling else "scaling unknown"
    per_node = curve.devices_per_node
    node_size = f"{per_node} devices per node" if per_node else "devices per node unknown"
    heading = f"{scaling}; {node_size}; {efficiency_basis(curve)}"
    method = method_sentences(prediction)
    lines = [*answer_sentences(prediction), heading]
    lines += filter(None, [two_efficiencies(curve), full_run_line(curve)])
    tables = [_check_table(prediction)]
    if method:
        lines += [prediction.law, *method]
        tables = [_points_table(prediction), *tables]
        tables += [_law_table(prediction, metric) for metric in ("throughput", "time")]
    lines += read_as_lines(curve)
    shown = tuple(table for table in tables if table.rows)
    notes, alerts = tuple(prediction_notes(prediction)), tuple(alert_lines(prediction.doubts))
    return [Section(curve.name, tuple(lines), shown, notes, alerts)]


def _points_table(prediction: Prediction) -> Table:
    """Return the measured points, and the predicted ones that were not held out."""
    curve = prediction.curve
    predicted = [point for point in prediction.points if not point.checks]
    counts = {point.devices for point in predicted}
    rows: list[Point | PredictedPoint] = [
        *(point for point in curve.points if point.devices not in counts),
        *predicted,
    ]
    rows.sort(key=lambda row: row.devices)
    return make_table("Measured, and predicted", rows, [
        ("devices", lambda r: str(r.devices)),
        ("nodes", lambda r: integer(r.nodes), "all"),
        (curve.rate_unit, lambda r: value(r.throughput)),
        ("90 % interval", lambda r: interval(r.throughput)),
        ("±", lambda r: relative_error(r.throughput), "all"),
        ("efficiency", lambda r: percent(prediction.efficiency(r))),
        ("complete time s", lambda r: value(r.time)),
        ("90 % interval", lambda r: interval(r.time),
         "wide" if has_throughput(curve) else "default"),
        ("±", lambda r: relative_error(r.time), "all"),
        ("reach", lambda r: (
            describe_reach(r).partition(";")[0] if isinstance(r, PredictedPoint) else NONE
        ), "all"),
        ("", lambda r: "predicted" if isinstance(r, PredictedPoint) and not r.measured
         else "measured"),
    ], hide_unknown=True)  # fmt: skip


def _check_table(prediction: Prediction) -> Table:
    """Return the points that were held out: predicted from fewer devices, and measured."""
    units = {"throughput": prediction.curve.rate_unit, "time": "complete time s"}
    rows = [(point.devices, check) for point in prediction.points for check in point.checks]
    return make_table("Held out: predicted from fewer devices, and measured", rows, [
        ("devices", lambda r: str(r[0])),
        ("from", lambda r: f"{r[1].fewest} to {r[1].most}", "wide"),
        ("metric", lambda r: units[r[1].metric]),
        ("predicted", lambda r: value(r[1].predicted)),
        ("90 % interval", lambda r: interval(r[1].predicted)),
        ("measured", lambda r: value(r[1].measured)),
        ("error", lambda r: percent(r[1].error)),
        ("", lambda r: inside_text(r[1]), "wide"),
    ])  # fmt: skip


def _law_table(prediction: Prediction, metric: str) -> Table:
    # Laws are fitted to all points: on a held-out count they predict nothing.
    counts = [point.devices for point in prediction.points if not point.checks]
    shown: list[Shown] = ["default" for _ in ("law", *counts, "error")]
    return Table(
        f"Laws of the {metric}, fitted to the measured points",
        ("law", *(f"on {count}" for count in counts), "mean error of the fit", "formula"),
        tuple(
            (fit.law, *(number(fit.value(count)) for count in counts), percent(fit.error),
             fit.formula)
            for fit in prediction.laws
            if fit.points.metric == metric
        ),
        (*shown, "all"),
    )  # fmt: skip


def as_json(prediction: Prediction, **extra: Any) -> str:
    """Return the prediction as JSON (docs/reference/json.md), with ``extra`` keys at the end."""
    curve, next_run = prediction.curve, prediction.next
    document = {
        **pick(curve, "study", "where", "scaling", "devices_per_node"),
        **full_run_values(curve),
        "measured": [point.devices for point in curve.points],
        "read_as": read_as_values(curve),
        "law": prediction.law,
        "sentences": prediction_sentences(prediction),
        "points": [
            {
                **pick(point, "devices", "nodes", "throughput", "time"),
                "reach": describe_reach(point),
                **_check_values(point),
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
        "outside_laws": law_disagreements(prediction),
        "odd": prediction.outliers,
        "warnings": prediction_warnings(prediction),
        "doubts": doubt_values(prediction.doubts),
        "not_correct": curve.not_correct,
        **extra,
    }
    return dump_json(document)


def _check_values(point: PredictedPoint) -> dict[str, Any]:
    """Return what was measured at a held-out point, and the errors, as JSON values."""
    if not point.checks:
        return {"held_out": False}
    names = ("metric", "measured", "error", "inside")
    checks = [pick(check, *names) for check in point.checks]
    return {"held_out": True, **checks[0], "checks": checks}
