"""The sentences of a prediction, with the arithmetic that a reader can check."""

import math
from collections.abc import Sequence

import numpy as np

from scalewise.analysis.number_format import format_count, format_number
from scalewise.analysis.predict.complete_time import CompleteTime
from scalewise.analysis.predict.forecast import Forecast
from scalewise.analysis.predict.next_measurement import NextMeasurement
from scalewise.analysis.predict.outliers import Outlier
from scalewise.analysis.predict.series import Series


def law(forecasts: Sequence[Forecast], complete_time: CompleteTime | None) -> str:
    """Return the formulas of the default predictor and of the complete time."""
    formulas = [_formula(made) for made in forecasts]
    return "; ".join([*formulas, str(complete_time)] if complete_time else formulas)


def _formula(made: Forecast) -> str:
    points, weight = made.points, made.trend_weight
    last = f"{points.last:.0f}"
    trend = f"trend = {math.exp(-made.trend.loss):.3f}^log2(N/{last})"
    mean = f"trend^{weight:.2f} models^{1 - weight:.2f}"
    value = format_number(float(points.values[-1]))
    if points.metric == "throughput":
        return f"X(N) = {value} N/{last} · {mean}, {trend}"
    return f"T(N) = {value} {last}/N / ({mean}), {trend}"


def sentences(
    forecasts: Sequence[Forecast],
    main: Series,
    largest: int,
    following: NextMeasurement | None,
    unit: str,
) -> tuple[str, ...]:
    """Return how the prediction was computed, its limits, and what to measure next."""
    lines = []
    for made in forecasts:
        lines += [_trend(made), _models(made.points), *_arithmetic(made, unit)]
    if missing := _not_measured(main, largest):
        lines.append(f"{missing[0].upper()}{missing[1:]}.")
    if following:
        lines.append(next_measurement(following))
    return tuple(lines)


def _trend(made: Forecast) -> str:
    trend, by_rate = made.trend, made.points.metric == "throughput"
    what = "per-device throughput" if by_rate else "parallel efficiency"
    text = (
        f"Expected {what} after each doubling: {100 * math.exp(-trend.loss):.1f} % "
        f"(logarithmic loss {_percent(trend.loss)} = {_percent(trend.typical_loss)} typical + "
        f"{trend.own_weight:.2f} × {_percent(trend.measured_loss)} measured)"
    )
    if trend.leave_node_loss and made.points.leaves_node(made.at).any():
        text += f"; leaving the node costs another {_percent(trend.leave_node_loss)}"
    return f"{text}."


def _models(points: Series) -> str:
    return (
        "The trend is averaged with machine models (compute, rings inside and between nodes, "
        "latency, growth), weighted by how well they explain the "
        f"{format_count(len(points.devices), f'measured {points.metric}')}."
    )


def _arithmetic(made: Forecast, unit: str) -> list[str]:
    """Return a line per count: last value × growth × efficiency = prediction."""
    points, weight = made.points, made.trend_weight
    last, by_rate = float(points.values[-1]), points.metric == "throughput"
    lines = []
    for index, count in enumerate(made.at):
        if count <= points.last:
            continue
        growth = count / points.last
        mean, trend, models = (
            math.exp(math.log(points.cost[-1]) - float(estimate[index]))
            for estimate in (made.middle, made.by_trend, made.by_machines)
        )
        value = last * growth * mean if by_rate else last / growth / mean
        operation = f"× {growth:g} ×" if by_rate else f"/ {growth:g} /"
        lines.append(
            f"{count:.0f} devices: {format_number(last)} {operation} {mean:.3f} = "
            f"{format_number(value)} {_unit(points.metric, unit)}; {mean:.3f} combines {trend:.3f} "
            f"by the trend (weight {weight:.2f}) and {models:.3f} by the machine models "
            f"(weight {1 - weight:.2f})."
        )
    return lines


def reach(points: Series, devices: float) -> str:
    """Return how far beyond the measurements a count is, and what they cannot show."""
    if devices in points.devices:
        return "measured"
    text = f"{devices / points.last:.3g} × the largest measurement"
    missing = _not_measured(points, devices)
    return f"{text}; {missing}" if missing else text


def _not_measured(points: Series, devices: float) -> str:
    """Return what the measurements cannot show about this many devices; may be empty."""
    if points.leaves_node(np.array([devices]))[0]:
        return "data from one node cannot show the network between nodes, a two-node run can"
    if points.per_node is None and devices > points.last:
        return "devices per node are unknown, so the network between nodes is not modelled"
    return ""


def next_measurement(following: NextMeasurement) -> str:
    """Return which measurement to make next, and its expected effect."""
    nodes = f" ({format_count(following.nodes, 'node')})" if following.nodes else ""
    purpose = ", the first across nodes" if following.unseen else ""
    return (
        f"Measure {following.devices} devices{nodes} next{purpose}: the interval of the "
        f"{following.metric} on {following.target} devices would shrink to about "
        f"{100 * following.shrinks:.0f} % of its width."
    )


def outlier(row: Outlier, unit: str) -> str:
    """Return which row does not fit, and what the other rows predict there."""
    per = _unit(row.metric, unit)
    return (
        f"{format_count(row.devices)}: {format_number(row.measured)} {per} is not explained by "
        f"the other rows: {row.law or 'they'} predict{'s' if row.law else ''} "
        f"{format_number(row.expected)} {per}"
    )


def _unit(metric: str, unit: str) -> str:
    return "s" if metric == "time" else f"{unit}/s"


def _percent(loss: float) -> str:
    """Return a logarithmic loss as percent: such losses add up."""
    return f"{100 * loss:.1f} %"
