"""Sentences that describe a prediction, with the arithmetic that a reader can check."""

import math

from scalewise.analysis.measure import Estimate
from scalewise.analysis.number_format import (
    format_count,
    format_number,
    format_percent,
    format_rounded,
)
from scalewise.analysis.predict import (
    HoldOutCheck,
    LawDisagreement,
    PredictedPoint,
    Prediction,
    below_fixed_cost,
    law_disagreements,
)
from scalewise.analysis.predict.forecast import Forecast
from scalewise.analysis.predict.next_measurement import NextMeasurement
from scalewise.analysis.predict.outliers import Outlier
from scalewise.report.text.doubts import note_texts, warning_text

UNKNOWNS = {
    "network": "data from one node cannot show the network between nodes, a two-node run can",
    "node size": "devices per node are unknown, so the network between nodes is not modelled",
}
"""By value of ``PredictedPoint.unknown``: what the measurements cannot show."""


DISAGREEMENT_REASONS = {
    "network": "{devices} need more than one node and no measured point does",
    "spans": "it adds up the parts of the job (launch, data, training …), each with its own law",
    "outlier": "one measured point does not fit the others, and laws weigh it differently",
    "last point": "it starts from the last measured point, which these laws miss",
    "typical loss": "it expects each doubling to lose {expected}, as published curves suggest, and "
    "these points lost {measured}",
    "machine models": "the machine models behind it have costs that no law has: rings inside and "
    "between nodes, contention",
}
"""By value of ``LawDisagreement.reason``: why the prediction differs from all laws that fit."""
COSTS_LEVEL_OFF = (
    "most machine models that explain these points have costs that level off with more devices, "
    "such as an all-reduce ring"
)
"""Instead of the last reason, if the prediction is faster than all laws."""


def prediction_sentences(prediction: Prediction) -> tuple[str, ...]:
    """Return the answers, then how they were computed and what to measure next."""
    return (*answer_sentences(prediction), *method_sentences(prediction))


def answer_sentences(prediction: Prediction) -> tuple[str, ...]:
    """Return one sentence per device count, and why the prediction is outside all laws, if so."""
    rate_unit = prediction.curve.rate_unit
    answers = []
    for point in prediction.points:
        if point.checks:
            answers += [_check_sentence(point, check, rate_unit) for check in point.checks]
        else:
            answers.append(_answer(prediction, point))
    answers += [_disagreement_sentence(row, rate_unit) for row in law_disagreements(prediction)]
    return tuple(answers)


def _answer(prediction: Prediction, point: PredictedPoint) -> str:
    parts = []
    if point.throughput:
        parts.append(_value_text(point.throughput, prediction.curve.rate_unit))
    efficiency = prediction.efficiency(point)
    if efficiency is not None:
        parts.append(f"efficiency {format_percent(efficiency, 0)}")
    if point.time:
        # The efficiency stands beside the value that it is computed from.
        parts.insert(len(parts) if point.throughput else 0, _value_text(point.time, "s"))
    between = ", between measured points" if point.reach < 1 and not point.measured else ""
    return f"On {format_count(point.devices)}{between}: {', '.join(parts)}."


def _value_text(estimate: Estimate, unit: str) -> str:
    text = f"{format_number(estimate.value)} {unit}"
    if estimate.low is None or estimate.high is None:
        return text
    return f"{text} (90 %: {format_number(estimate.low)} to {format_number(estimate.high)})"


def _check_sentence(point: PredictedPoint, check: HoldOutCheck, rate_unit: str) -> str:
    """Say what was predicted from fewer devices, what was measured, and how far off it was."""
    predicted = _value_text(check.predicted, "s" if check.metric == "time" else rate_unit)
    sign = "+" if check.error >= 0 else "−"
    return (
        f"On {format_count(point.devices)}, predicted from {check.fewest:,} to {check.most:,}: "
        f"{predicted}; measured: {format_number(check.measured.value)}; error "
        f"{sign}{format_percent(abs(check.error))}, {inside_text(check)}."
    )


def inside_text(check: HoldOutCheck) -> str:
    """Return whether the measured value lay inside the interval."""
    return f"{'inside' if check.inside else 'outside'} the interval"


def _disagreement_sentence(row: LawDisagreement, rate_unit: str) -> str:
    """Say what all laws that fit predict, and why the prediction is lower or higher."""
    row_unit = "s" if row.metric == "time" else rate_unit
    low, high, predicted = map(format_number, (row.low, row.high, row.predicted))
    span = low if low == high else f"{low} to {high}"
    laws = (
        "The only textbook law that fits these points predicts"
        if row.laws == 1
        else f"All {row.laws} textbook laws that fit these points predict"
    )
    devices = format_count(row.devices)
    losses = [
        "nothing" if loss is None or loss <= 0 else format_percent(-math.expm1(-loss))
        for loss in (row.expected_loss, row.measured_loss)
    ]
    reason = DISAGREEMENT_REASONS[row.reason]
    if row.reason == "machine models" and not row.is_slower:
        reason = COSTS_LEVEL_OFF
    reason = reason.format(devices=devices, expected=losses[0], measured=losses[1])
    change = "lower" if row.predicted < row.low else "higher"
    return (
        f"{laws} {span} {row_unit} on {devices}; the prediction is {change} ({predicted}) because "
        f"{reason}."
    )


def method_sentences(prediction: Prediction) -> tuple[str, ...]:
    """Return how the prediction was computed, its limits, and what to measure next."""
    if all(point.checks for point in prediction.points):
        return ()  # The formulas are those of all points, and no check used them.
    lines = []
    for forecast in prediction.forecasts:
        metric = forecast.points.metric  # Its points may be fewer than the measured ones.
        counts = {point.devices for point in prediction.curve.points if getattr(point, metric)}
        measured = format_count(len(counts), f"measured {metric}")
        models = (
            "The trend is averaged with machine models (compute, rings inside and between nodes, "
            f"latency, growth), weighted by how well they explain the {measured}."
        )
        lines += [
            _trend_sentence(forecast),
            models,
            *_arithmetic(forecast, prediction.curve.rate_unit),
        ]
    if unknown := prediction.points[-1].unknown:
        lines.append(f"{UNKNOWNS[unknown].capitalize()}.")
    if prediction.next:
        lines.append(next_measurement(prediction.next))
    return tuple(lines)


def prediction_warnings(prediction: Prediction) -> tuple[str, ...]:
    """Return the warnings of the curve, one per outlier, and a contradiction if there is one."""
    curve = prediction.curve
    outliers = (_outlier_warning(row, curve.rate_unit) for row in prediction.outliers)
    return (*map(warning_text, curve.warnings), *outliers, *below_fixed_warnings(prediction))


def prediction_notes(prediction: Prediction) -> list[str]:
    """Return what is worth knowing about the curve and about the predicted numbers of devices."""
    curve = prediction.curve
    doubts = prediction.doubts[len(curve.doubts) :]
    return [*note_texts((*curve.warnings, *doubts)), *below_fixed_warnings(prediction)]


def below_fixed_warnings(prediction: Prediction) -> tuple[str, ...]:
    """Warn if predicted times are below the fixed part of the law fitted to measured times."""
    below = below_fixed_cost(prediction)
    if below is None:
        return ()
    return (
        f"from {format_count(below.devices)} on the predicted time is below the "
        f"{format_rounded(below.fixed)} s that {below.formula} takes as fixed: measure before you "
        "rely on it",
    )


def describe_reach(point: PredictedPoint) -> str:
    """Return how far beyond the measurements a point is, and what these cannot show about it."""
    if point.checks:
        return "held out: predicted from fewer devices only"
    if point.measured:
        return "measured"
    if point.reach < 1:
        return "between measured points"
    text = f"{point.reach:.3g} × the largest measurement"
    return f"{text}; {UNKNOWNS[point.unknown]}" if point.unknown else text


def next_measurement(measurement: NextMeasurement) -> str:
    """Return which measurement to make next, and its expected effect."""
    nodes = f" ({format_count(measurement.nodes, 'node')})" if measurement.nodes else ""
    reason = ", the first across nodes" if measurement.unseen else ""
    return (
        f"Measure {measurement.devices} devices{nodes} next{reason}: the interval of the "
        f"{measurement.metric} on {measurement.target} devices would shrink to about "
        f"{100 * measurement.shrinks:.0f} % of its width."
    )


def _outlier_warning(outlier: Outlier, rate_unit: str) -> str:
    """Return which measurement does not fit the others, and what they predict there."""
    row_unit = "s" if outlier.metric == "time" else rate_unit
    return (
        f"{format_count(outlier.devices)}: {format_number(outlier.measured)} {row_unit} is not "
        f"explained by the other rows: {outlier.law or 'they'} predict{'s' if outlier.law else ''} "
        f"{format_number(outlier.expected)} {row_unit}"
    )


def _trend_sentence(forecast: Forecast) -> str:
    trend, is_throughput = forecast.trend, forecast.points.metric == "throughput"
    quantity = "per-device throughput" if is_throughput else "parallel efficiency"
    # Losses are logarithms, so they add up.
    loss, typical, measured, leave_node = (
        f"{100 * part:.1f} %"
        for part in (trend.loss, trend.typical_loss, trend.measured_loss, trend.leave_node_loss)
    )
    text = (
        f"Expected {quantity} after each doubling: {100 * math.exp(-trend.loss):.1f} % "
        f"(logarithmic loss {loss} = {typical} typical + {trend.own_weight:.2f} × {measured} "
        "measured)"
    )
    if trend.leave_node_loss and forecast.points.leaves_node(forecast.at).any():
        text += f"; leaving the node costs another {leave_node}"
    return f"{text}."


def _arithmetic(forecast: Forecast, rate_unit: str) -> list[str]:
    """Return a line per predicted count: last value × growth × efficiency; a time is divided."""
    points, weight = forecast.points, forecast.trend_weight
    last_value, is_throughput = float(points.values[-1]), points.metric == "throughput"
    lines = []
    for index, count in enumerate(forecast.at):
        if count <= points.last:
            continue
        growth = count / points.last
        mean, trend, models = forecast.efficiencies(index)
        value = last_value * growth * mean if is_throughput else last_value / growth / mean
        operation = f"× {growth:g} ×" if is_throughput else f"/ {growth:g} /"
        lines.append(
            f"{count:.0f} devices: {format_number(last_value)} {operation} {mean:.3f} = "
            f"{format_number(value)} {rate_unit if is_throughput else 's'}; {mean:.3f} combines "
            f"{trend:.3f} by the trend (weight {weight:.2f}) and {models:.3f} by the machine "
            f"models (weight {1 - weight:.2f})."
        )
    return lines
