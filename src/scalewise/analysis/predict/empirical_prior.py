"""The first of two views: what curves like this one usually lose with each doubling.

    log cost(N) = log cost(last) + (usual + own · seen) · log2(N / last) + leaving

``seen`` is the loss per doubling from the first to the last measurement. It is
shrunk towards what is usual, because few points say little; ``leaving`` is added
where N leaves the only node that was measured.
"""

import math
from dataclasses import dataclass

import numpy as np

from scalewise.analysis.predict.learned import Learned
from scalewise.analysis.predict.series import Floats, Series


@dataclass(frozen=True, slots=True)
class Habit:
    """The loss per doubling that is expected of one curve, as a logarithm of cost."""

    seen: float
    usual: float
    own: float
    leaving: float

    @property
    def loss(self) -> float:
        return self.usual + self.own * self.seen

    def log_cost(self, points: Series, at: Floats) -> Floats:
        """Return the logarithm of the cost at these counts; below the last point it is flat."""
        beyond = np.maximum(np.log2(at / points.last), 0)
        gone = np.where(points.leaves_node(at), self.leaving, 0.0)
        return math.log(points.cost[-1]) + self.loss * beyond + gone


def habit(points: Series, known: Learned) -> Habit:
    """Return what to expect of a curve of at least two points."""
    grown = math.log2(points.last / points.devices[0])
    seen = math.log(points.cost[-1] / points.cost[0]) / grown
    return Habit(seen, known.usual, known.own, known.leaving)
