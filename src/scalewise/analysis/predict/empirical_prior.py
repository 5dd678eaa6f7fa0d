"""First of two estimates, the trend: every doubling of devices loses the same share.

    log cost(N) = log cost(last) + (typical + weight · measured) · log2(N / last) + leave_node

``last`` is the largest measured device count. ``typical`` is the loss per doubling of published
curves. ``measured`` is this curve's loss per doubling from its first to its last point; its weight
is below 1. ``leave_node`` is an extra loss if N needs several nodes and only one was measured.
"""

import math
from dataclasses import dataclass

import numpy as np

from scalewise.analysis.predict.learned import Learned
from scalewise.analysis.predict.series import Floats, Series


@dataclass(frozen=True, slots=True)
class Trend:
    """The expected loss of one curve per doubling, and its parts, all as logarithms of the cost."""

    measured_loss: float
    typical_loss: float
    own_weight: float
    leave_node_loss: float

    @property
    def loss(self) -> float:
        return self.typical_loss + self.own_weight * self.measured_loss

    def log_cost(self, points: Series, at: Floats) -> Floats:
        """Return the logarithm of the cost at these counts; constant up to the last point."""
        doublings = np.maximum(np.log2(at / points.last), 0)
        leave_node = np.where(points.leaves_node(at), self.leave_node_loss, 0.0)
        return math.log(points.cost[-1]) + self.loss * doublings + leave_node


def expected_trend(points: Series, learned: Learned) -> Trend:
    """Return the trend of a curve with at least two points."""
    doublings = math.log2(points.last / points.devices[0])
    measured = math.log(points.cost[-1] / points.cost[0]) / doublings
    return Trend(measured, learned.typical_loss, learned.own_weight, learned.leave_node_loss)
