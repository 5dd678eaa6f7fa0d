"""The next measurement that would narrow the interval most. Each candidate is assumed to give the
expected value, or one standard deviation more or less, and the interval is predicted again.
"""

import math
from dataclasses import dataclass

import numpy as np

from scalewise.analysis.predict.forecast import forecast
from scalewise.analysis.predict.learned import Learned
from scalewise.analysis.predict.series import Series

OUTCOMES = (-0.6, 0.0, 0.6)
"""Assumed results of a measurement, in half-widths of its 90 % interval (1.64 sigma): ± 1 sigma."""
DRAWS = 4096
"""Machine models per forecast: fewer than for the prediction itself are enough here."""
MAX_DOUBLINGS = 2
"""Candidates are up to this many doublings beyond the last point."""


@dataclass(frozen=True, slots=True)
class NextMeasurement:
    """One more measurement, and its effect on the interval of one prediction."""

    devices: int
    nodes: int | None
    target: int
    """The number of devices whose prediction it improves."""
    metric: str
    """What is predicted there: throughput or time."""
    width: float
    """Current width of that interval: the logarithm of high / low."""
    expected: float
    """Expected width after the measurement."""
    unseen: bool = False
    """Whether the prediction needs a network that was not measured."""

    @property
    def shrinks(self) -> float:
        """The expected width as a share of the current width."""
        return self.expected / self.width


def best_next_measurement(
    points: Series, target: float, learned: Learned | None = None
) -> NextMeasurement | None:
    """Return the most informative measurement: two nodes if only one was measured and the target
    needs more, else the next doubling that narrows the interval most per device. None where the
    target is not beyond the last point.
    """
    if target <= points.last:
        return None
    at = np.array([target])
    current = forecast(points, at, learned, draws=DRAWS)
    doublings = [points.last * 2.0**step for step in range(1, MAX_DOUBLINGS + 1)]
    counts = [count for count in doublings if count < target] or [target]
    if points.per_node and points.leaves_node(at)[0]:
        counts = [min(2.0 * points.per_node, target)]
    candidates = []
    for count in counts:
        expected = forecast(points, np.array([count]), learned, draws=DRAWS)
        widths = []
        for outcome in OUTCOMES:
            above, below = expected.high - expected.middle, expected.middle - expected.low
            log_cost = expected.middle + outcome * (above if outcome > 0 else below)
            assumed = points.with_point(count, float(np.exp(log_cost)[0]))
            widths.append(float(forecast(assumed, at, learned, draws=DRAWS).width[0]))
        candidate = NextMeasurement(
            devices=int(count),
            nodes=points.node_count(int(count)),
            target=int(target),
            metric=points.metric,
            width=float(current.width[0]),
            expected=float(np.mean(widths)),
            unseen=bool(points.leaves_node(at)[0]),
        )
        candidates.append(candidate)
    # log(shrinks) is negative: the minimum narrows the interval most per device.
    return min(candidates, key=lambda candidate: math.log(candidate.shrinks) / candidate.devices)
