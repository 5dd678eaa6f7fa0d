"""Sentences that describe a prediction, with the arithmetic that a reader can check."""

import math

from scalewise.analysis.number_format import format_count, format_number
from scalewise.analysis.predict import PredictedPoint, Prediction
from scalewise.analysis.predict.forecast import Forecast
from scalewise.analysis.predict.next_measurement import NextMeasurement
from scalewise.analysis.predict.outliers import Outlier
from scalewise.report.text.doubts import warning_text

UNKNOWNS = {
    "network": "data from one node cannot show the network between nodes, a two-node run can",
    "node size": "devices per node are unknown, so the network between nodes is not modelled",
}
"""By value of ``PredictedPoint.unknown``: what the measurements cannot show."""


def prediction_sentences(prediction: Prediction) -> tuple[str, ...]:
    """Return how the prediction was computed, its limits, and what to measure next."""
    lines = []
    for forecast in prediction.forecasts:
        measured = format_count(len(forecast.points.devices), f"measured {forecast.points.metric}")
        models = (
            "The trend is averaged with machine models (compute, rings inside and between nodes, "
            f"latency, growth), weighted by how well they explain the {measured}."
        )
        lines += [_trend_sentence(forecast), models, *_arithmetic(forecast, prediction.curve.unit)]
    if unknown := prediction.points[-1].unknown:
        lines.append(f"{UNKNOWNS[unknown].capitalize()}.")
    if prediction.next:
        lines.append(next_measurement(prediction.next))
    return tuple(lines)


def prediction_warnings(prediction: Prediction) -> tuple[str, ...]:
    """Return the warnings of the curve, and one per outlier."""
    curve = prediction.curve
    outliers = (_outlier_warning(row, curve.unit) for row in prediction.outliers)
    return (*map(warning_text, curve.warnings), *outliers)


def describe_reach(point: PredictedPoint) -> str:
    """Return how far beyond the measurements a point is, and what these cannot show about it."""
    if point.measured:
        return "measured"
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


def _outlier_warning(outlier: Outlier, unit: str) -> str:
    """Return which measurement does not fit the others, and what they predict there."""
    row_unit = "s" if outlier.metric == "time" else f"{unit}/s"
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


def _arithmetic(forecast: Forecast, unit: str) -> list[str]:
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
            f"{format_number(value)} {f'{unit}/s' if is_throughput else 's'}; {mean:.3f} combines "
            f"{trend:.3f} by the trend (weight {weight:.2f}) and {models:.3f} by the machine "
            f"models (weight {1 - weight:.2f})."
        )
    return lines
