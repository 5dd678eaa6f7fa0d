"""The measurement worth making next: where it is, and how much surer it would make us.

Every candidate is played through: suppose it gives what is expected, or somewhat
more, or somewhat less; predict again with it; see how wide the interval is then.
"""

import math
from dataclasses import dataclass

import numpy as np

from scalewise.analysis.predict.forecast import Forecast, forecast
from scalewise.analysis.predict.learned import Learned
from scalewise.analysis.predict.series import Series

OUTCOMES = (-0.6, 0.0, 0.6)
"""What a measurement may give, in half-widths of its interval: one standard deviation off."""
DRAWS = 4096
"""Playing through needs fewer machines than the prediction itself."""
STEPS = 2
"""How many doublings beyond the last point are weighed against each other."""


@dataclass(frozen=True, slots=True)
class Worth:
    """One more measurement, and what it would do to the interval of one prediction."""

    devices: int
    nodes: int | None
    target: int
    """The number of devices whose prediction it makes surer."""
    metric: str
    """What is predicted there: throughput or time."""
    width: float
    """How wide that interval is now: the logarithm of high / low."""
    expected: float
    """How wide it would be then."""
    unseen: bool = False
    """Whether the prediction needs a network that no measurement has seen."""

    @property
    def shrinks(self) -> float:
        """The expected width as a share of the width now."""
        return self.expected / self.width

    def __str__(self) -> str:
        where = f"{self.devices} devices"
        if self.nodes:
            where += f" ({self.nodes} node{'s' if self.nodes > 1 else ''})"
        first = "A two-node run tells most: measure" if self.unseen else "Measure"
        return (
            f"{first} {where} next, and the interval of the {self.metric} on {self.target} "
            f"devices shrinks to about {100 * self.shrinks:.0f} % of its width."
        )


def worth(points: Series, target: float, known: Learned | None = None) -> Worth | None:
    """Return the most informative next measurement for a prediction beyond the last point.

    Where only one node was measured and the target is not in it, that is two
    nodes; else the one of the next doublings that gains most per device.
    """
    if target <= points.last:
        return None
    now = forecast(points, np.array([target]), known, draws=DRAWS)
    counts = _candidates(points, target)
    found = [_played(points, count, target, now, known) for count in counts]
    return min(found, key=lambda each: math.log(each.shrinks) / each.devices)


def _candidates(points: Series, target: float) -> list[float]:
    if points.per_node and points.leaves_node(np.array([target]))[0]:
        return [min(2.0 * points.per_node, target)]
    doublings = [points.last * 2.0**step for step in range(1, STEPS + 1)]
    return [count for count in doublings if count < target] or [target]


def _played(
    points: Series, count: float, target: float, now: Forecast, known: Learned | None
) -> Worth:
    at = np.array([target])
    there = forecast(points, np.array([count]), known, draws=DRAWS)
    widths = []
    for outcome in OUTCOMES:
        side = there.high - there.middle if outcome > 0 else there.middle - there.low
        supposed = points.plus(count, float(np.exp(there.middle + outcome * side)[0]))
        widths.append(float(forecast(supposed, at, known, draws=DRAWS).width[0]))
    nodes = int(points.nodes(np.array([count]))[0]) if points.per_node else None
    return Worth(
        devices=int(count),
        nodes=nodes,
        target=int(target),
        metric=points.metric,
        width=float(now.width[0]),
        expected=float(np.mean(widths)),
        unseen=bool(points.leaves_node(at)[0]),
    )
