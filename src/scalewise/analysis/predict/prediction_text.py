"""What a prediction says, in sentences that a person can check."""

import math

import numpy as np

from scalewise.analysis.number_format import format_count, format_number
from scalewise.analysis.predict.forecast import Forecast
from scalewise.analysis.predict.outliers import Odd
from scalewise.analysis.predict.series import Series


def formula(points: Series, made: Forecast) -> str:
    """Return the rule of the default, as a formula."""
    last = f"{points.last:.0f}"
    habit = f"habit = {math.exp(-made.habit.loss):.3f}^log2(N/{last})"
    both = f"habit^{made.trust:.2f} machines^{1 - made.trust:.2f}"
    value = format_number(float(points.values[-1]))
    if points.metric == "throughput":
        return f"X(N) = {value} N/{last} · {both}, {habit}"
    return f"T(N) = {value} {last}/N / ({both}), {habit}"


def choice(points: Series, made: Forecast, unit: str) -> list[str]:
    """Say how the prediction came about: the two views, then the arithmetic of each count."""
    return [_by_habit(points, made), _by_machines(points), *_arithmetic(points, made, unit)]


def _by_habit(points: Series, made: Forecast) -> str:
    habit = made.habit
    those = "Curves like this" if points.metric == "throughput" else "Times like these"
    told = (
        f"{those} lose {share(habit.loss)} per doubling: {share(habit.usual)} that is "
        f"usual + {habit.own:.2f} × the {share(habit.seen)} lost per doubling so far"
    )
    if habit.leaving and points.leaves_node(made.at).any():
        told += f", and {share(habit.leaving)} when they leave the node"
    return f"{told} (in logarithms: {math.exp(-habit.loss):.3f} is kept)."


def _by_machines(points: Series) -> str:
    what = f"{len(points.devices)} {points.metric}s"
    return (
        f"Machines that explain the {what} (compute, rings in and across nodes, latency, growth) "
        "are averaged by how well they do."
    )


def _arithmetic(points: Series, made: Forecast, unit: str) -> list[str]:
    """Return a line per count: last value × growth × what is kept = prediction."""
    last, faster = float(points.values[-1]), points.metric == "throughput"
    per = _per(points.metric, unit)
    told = []
    for place, count in enumerate(made.at):
        if count <= points.last:
            continue
        grown = count / points.last
        keeps = [
            math.exp(math.log(points.cost[-1]) - float(view[place]))
            for view in (made.middle, made.by_habit, made.by_machines)
        ]
        value = last * grown * keeps[0] if faster else last / grown / keeps[0]
        sign = f"× {grown:g} ×" if faster else f"/ {grown:g} /"
        told.append(
            f"{count:.0f} devices: {format_number(last)} {sign} {keeps[0]:.3f} = "
            f"{format_number(value)} {per}; "
            f"{keeps[0]:.3f} is {keeps[1]:.3f} by the loss per doubling (weight {made.trust:.2f}) "
            f"and {keeps[2]:.3f} by the machines (weight {1 - made.trust:.2f})."
        )
    return told


def reach(points: Series, devices: float) -> str:
    """Say how far beyond the measurements a count is, and what they cannot show."""
    if devices in points.devices:
        return "measured"
    told = f"{devices / points.last:.3g} × the largest measurement"
    blind = unseen(points, devices)
    return f"{told}; {blind}" if blind else told


def unseen(points: Series, devices: float) -> str:
    """Say what the measurements cannot show of this many devices, if anything."""
    if points.leaves_node(np.array([devices]))[0]:
        return "data from one node cannot show the network between nodes, a two-node run can"
    if points.per_node is None and devices > points.last:
        return "devices per node are not known, so neither is where the network begins"
    return ""


def unexplained(found: Odd, unit: str) -> str:
    """Say which row is odd, and by what law."""
    per = _per(found.metric, unit)
    expected = f"{format_number(found.expected)} {per}"
    why = f"by {found.law}, {expected} is expected" if found.law else f"they say {expected}"
    return (
        f"{format_count(found.devices)}: {format_number(found.measured)} {per} is not explained by "
        "the other "
        f"rows: {why}"
    )


def _per(metric: str, unit: str) -> str:
    return "s" if metric == "time" else f"{unit}/s"


def share(log: float) -> str:
    """Return a loss in percent, as a logarithm: so that parts add up to their sum.

    >>> share(0.0), share(0.05)
    ('0.0 %', '5.0 %')
    """
    return f"{100 * log:.1f} %"
