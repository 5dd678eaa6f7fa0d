"""The next measurement that would narrow the interval most. For each candidate, three results are
assumed: the expected value and one standard deviation above and below it. With each of them added
to the measurements, the interval is predicted again.
"""

import math
from dataclasses import dataclass

import numpy as np

from scalewise.analysis.predict.forecast import forecast
from scalewise.analysis.predict.learned import Learned
from scalewise.analysis.predict.series import Series

OUTCOMES = (-0.6, 0.0, 0.6)
"""Assumed results, in half-widths of the 90 % interval: 0.6 half-widths are one sigma."""
DRAWS = 4096
"""Machine models per forecast: fewer than for the prediction itself are enough here."""
MAX_DOUBLINGS = 2
"""Candidates are at most this many doublings larger than the last measured count."""


@dataclass(frozen=True, slots=True)
class NextMeasurement:
    """One more measurement, and its effect on the interval of one prediction."""

    devices: int
    nodes: int | None
    target: int
    """The number of devices whose prediction this measurement improves."""
    metric: str
    """What is predicted for ``target`` devices: throughput or time."""
    width: float
    """Current width of the interval at ``target``: the logarithm of high / low."""
    expected: float
    """Expected width after the measurement."""
    unseen: bool = False
    """Whether ``target`` needs several nodes, whose network no measurement has used yet."""

    @property
    def shrinks(self) -> float:
        """The expected width as a share of the current width."""
        return self.expected / self.width


def best_next_measurement(
    points: Series, target: float, learned: Learned | None = None
) -> NextMeasurement | None:
    """Return the most useful next measurement; None if ``target`` is not above the last count.
    If only one node was measured and the target needs several, it is two nodes. Else it is the
    candidate that narrows the interval at ``target`` most per device used.
    """
    if target <= points.last:
        return None
    at = np.array([target])
    current = forecast(points, at, learned, draws=DRAWS)
    doublings = [points.last * 2.0**step for step in range(1, MAX_DOUBLINGS + 1)]
    candidate_counts = [count for count in doublings if count < target] or [target]
    if points.per_node and points.leaves_node(at)[0]:
        candidate_counts = [min(2.0 * points.per_node, target)]
    candidates = []
    for count in candidate_counts:
        at_count = forecast(points, np.array([count]), learned, draws=DRAWS)
        widths = []
        for outcome in OUTCOMES:
            above, below = at_count.high - at_count.middle, at_count.middle - at_count.low
            log_cost = at_count.middle + outcome * (above if outcome > 0 else below)
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
