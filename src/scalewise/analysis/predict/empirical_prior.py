"""First of two estimates, the trend: every doubling of devices loses the same share.

    log cost(N) = log cost(last) + (typical + weight · measured) · log2(N / last) + leave_node

``last`` is the largest measured count, ``typical`` the loss per doubling of published curves, and
``measured`` the curve's own, from its first to its last point, with a weight below 1.
``leave_node`` is added where only one node was measured and N needs more.
"""

import math
from dataclasses import dataclass

import numpy as np

from scalewise.analysis.predict.learned import Learned
from scalewise.analysis.predict.series import Floats, Series


@dataclass(frozen=True, slots=True)
class Trend:
    """The expected loss per doubling of one curve and its parts; losses are logarithms of cost."""

    measured_loss: float
    typical_loss: float
    own_weight: float
    leave_node_loss: float

    @property
    def loss(self) -> float:
        return self.typical_loss + self.own_weight * self.measured_loss

    def log_cost(self, points: Series, at: Floats) -> Floats:
        """Return the logarithm of the cost at these device counts; constant up to the last."""
        doublings = np.maximum(np.log2(at / points.last), 0)
        leave_node = np.where(points.leaves_node(at), self.leave_node_loss, 0.0)
        return math.log(points.cost[-1]) + self.loss * doublings + leave_node


def expected_trend(points: Series, learned: Learned) -> Trend:
    """Return the trend of a curve with at least two points."""
    doublings = math.log2(points.last / points.devices[0])
    measured = math.log(points.cost[-1] / points.cost[0]) / doublings
    return Trend(measured, learned.typical_loss, learned.own_weight, learned.leave_node_loss)
