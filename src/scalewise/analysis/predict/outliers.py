"""Measured rows that their own law does not explain.

Each point is predicted from all the others; one that lies far off, and far
beyond what the others are off, is named. The worst one goes first, and the rest
are then judged without it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from scalewise.analysis.predict.forecast import forecast
from scalewise.analysis.predict.laws import Fit, complete
from scalewise.analysis.predict.series import Series

DRAWS = 2048
FEWEST = 5
"""Points below which nobody can tell which one is odd."""
FAR = 0.15
"""What is less far off, in logarithms, is not worth a word."""
BEYOND = 5.0
"""How many times further off than the others a time has to be."""
OUTSIDE = 2.0
"""How many half-widths off a throughput has to be."""


@dataclass(frozen=True, slots=True)
class Odd:
    """A point, what was measured there, and what the others let expect."""

    devices: int
    metric: str
    measured: float
    expected: float
    law: str = ""
    """The formula it does not follow; for a throughput, all machines that explain the others."""


def odd(points: Series) -> list[Odd]:
    """Return the points that the others do not explain."""
    return list(_odd(points))


def _odd(points: Series) -> Iterator[Odd]:
    places = np.arange(len(points.devices))
    while len(places) >= FEWEST:
        judge = _of_time if points.metric == "time" else _of_throughput
        off, found = max(
            (judge(points.only(places != place), points.only(places == place)) for place in places),
            key=lambda judged: judged[0],
        )
        if off <= 1:
            return
        yield found
        kept = points.devices != found.devices
        points, places = points.only(kept), places[:-1]


def _of_time(others: Series, one: Series) -> tuple[float, Odd]:
    """Judge a time by fixed, shared and growing parts fitted to the others."""
    fit = complete.fit(others)
    error = abs(float(np.log(one.cost / fit.cost(one.devices))[0]))
    return error / max(FAR, BEYOND * fit.error), _told(fit, one)


def _told(fit: Fit, one: Series) -> Odd:
    devices = int(one.devices[0])
    return Odd(devices, "time", float(one.values[0]), fit.value(devices), fit.formula)


def _of_throughput(others: Series, one: Series) -> tuple[float, Odd]:
    """Judge a throughput by the machines that explain the others."""
    made = forecast(others, one.devices, draws=DRAWS)
    error = float(np.log(one.cost)[0] - made.middle[0])
    half = (made.high - made.middle if error > 0 else made.middle - made.low)[0]
    expected = float(one.back(one.devices, np.exp(made.middle))[0])
    found = Odd(int(one.devices[0]), "throughput", float(one.values[0]), expected)
    return min(abs(error) / FAR, abs(error) / (OUTSIDE * half)), found
