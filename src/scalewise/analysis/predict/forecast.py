"""The default predictor: two unlike views of a curve, averaged, with a calibrated band.

Neither the loss that is usual per doubling nor the machines that explain the
measurements is better everywhere, and they err differently: their mean, on the
logarithmic scale, errs less than either. The band is the machines' own 90 %
interval, moved to that mean, times what it took to hold nine of ten on published
curves; and it is wider where the two views disagree.
"""

from dataclasses import dataclass, replace

import numpy as np

from scalewise.analysis.predict.empirical_prior import Habit, habit
from scalewise.analysis.predict.learned import Learned, learned
from scalewise.analysis.predict.posterior import DRAWS, outlook
from scalewise.analysis.predict.series import Floats, Series, need


@dataclass(frozen=True, eq=False)
class Forecast:
    """Logarithms of cost at each count that was asked for, and the views behind them."""

    at: Floats
    middle: Floats
    low: Floats
    high: Floats
    habit: Habit
    by_habit: Floats
    by_machines: Floats
    trust: float

    @property
    def apart(self) -> Floats:
        """Half of how far the views disagree."""
        return np.asarray(np.abs(self.by_habit - self.by_machines) / 2)

    @property
    def width(self) -> Floats:
        """How wide each interval is, as a logarithm."""
        return self.high - self.low


def forecast(
    points: Series,
    at: Floats,
    known: Learned | None = None,
    *,
    seed: int = 0,
    draws: int = DRAWS,
) -> Forecast:
    """Return what to expect at these counts, from two measured points or more."""
    need(points, 2, "a prediction")
    known = known or learned()[points.kind]
    expected = habit(points, known)
    low, middle, high = outlook(points, at, known, seed, draws).quantiles((0.05, 0.5, 0.95))
    by_habit = np.where(at > points.last, expected.log_cost(points, at), middle)
    mean = known.trust * by_habit + (1 - known.trust) * middle
    made = Forecast(
        at=at, middle=mean, low=mean, high=mean, habit=expected,
        by_habit=by_habit, by_machines=middle, trust=known.trust,
    )  # fmt: skip
    return replace(
        made,
        low=mean - np.hypot(known.widen * (middle - low), made.apart),
        high=mean + np.hypot(known.widen * (high - middle), made.apart),
    )
