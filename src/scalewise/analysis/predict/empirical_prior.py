"""First of two estimates: the trend, a loss per doubling that is typical of published curves.

    log cost(N) = log cost(last) + (typical + weight · measured) · log2(N / last) + leave_node

``measured``, from the first to the last measurement, is shrunk towards the typical loss;
``leave_node`` is added where N leaves the only node that was measured.
"""

import math
from dataclasses import dataclass

import numpy as np

from scalewise.analysis.predict.learned import Learned
from scalewise.analysis.predict.series import Floats, Series


@dataclass(frozen=True, slots=True)
class Trend:
    """The loss per doubling that is expected of one curve, as a logarithm of cost."""

    measured_loss: float
    typical_loss: float
    own_weight: float
    leave_node_loss: float

    @property
    def loss(self) -> float:
        return self.typical_loss + self.own_weight * self.measured_loss

    def log_cost(self, points: Series, at: Floats) -> Floats:
        """Return the logarithm of the cost at these counts; constant below the last point."""
        doublings = np.maximum(np.log2(at / points.last), 0)
        leave_node = np.where(points.leaves_node(at), self.leave_node_loss, 0.0)
        return math.log(points.cost[-1]) + self.loss * doublings + leave_node


def expected_trend(points: Series, learned: Learned) -> Trend:
    """Return the trend of a curve with at least two points."""
    doublings = math.log2(points.last / points.devices[0])
    measured = math.log(points.cost[-1] / points.cost[0]) / doublings
    return Trend(measured, learned.typical_loss, learned.own_weight, learned.leave_node_loss)
