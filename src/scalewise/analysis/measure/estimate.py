"""A measured number, its 90 % interval, and how often it was measured."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from scalewise.errors import NotEnoughData

CONFIDENCE_LEVEL = 0.90
"""The share of intervals that should hold the truth, everywhere."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number; ``low`` and ``high`` are nothing where one number is all there is."""

    value: float
    low: float | None = None
    high: float | None = None
    count: int = 1

    @classmethod
    def of(cls, values: Sequence[float]) -> "Estimate":
        """Summarize repeats of a positive quantity: Student-t on the logarithms.

        >>> Estimate.of([100.0, 100.0])
        Estimate(value=100.0, low=100.0, high=100.0, count=2)
        """
        return _summary(values, math.log, math.exp)

    @classmethod
    def of_shares(cls, values: Sequence[float]) -> "Estimate":
        """Summarize repeats of a quantity that may be 0: Student-t on the values."""
        return _summary(values, float, float)

    def __truediv__(self, other: "Estimate") -> "Estimate":
        """Return a ratio; the two errors are independent and add in squares.

        The half-widths are combined on the logarithmic scale, each side apart:
        an approximation, on the wide side for few repeats.
        """
        value = self.value / other.value
        count = min(self.count, other.count)
        if self.low is None or self.high is None or other.low is None or other.high is None:
            return Estimate(value, count=count)
        down = math.hypot(_gap(self.value, self.low), _gap(other.high, other.value))
        up = math.hypot(_gap(self.high, self.value), _gap(other.value, other.low))
        return Estimate(value, value * math.exp(-down), value * math.exp(up), count)

    def __mul__(self, factor: float) -> "Estimate":
        """Return the estimate in another unit."""
        return self.through(lambda value: value * factor)

    def through(self, function: Callable[[float], float]) -> "Estimate":
        """Return a monotonic function of the estimate, its interval carried along."""
        if self.low is None or self.high is None:
            return Estimate(function(self.value), count=self.count)
        low, high = sorted((function(self.low), function(self.high)))
        return Estimate(function(self.value), low, high, self.count)


def _gap(larger: float, smaller: float) -> float:
    return math.log(larger / smaller) if smaller > 0 else math.inf


def _summary(
    values: Sequence[float], to: Callable[[float], float], back: Callable[[float], float]
) -> Estimate:
    if not values:
        raise NotEnoughData("nothing was measured")
    if len(values) == 1:
        return Estimate(values[0])
    moved = np.array([to(value) for value in values])
    if moved.max() - moved.min() <= 1e-15 * abs(moved).max():  # Alike but for rounding.
        return Estimate(values[0], values[0], values[0], len(values))
    mean, half = float(moved.mean()), _half_width(moved)
    return Estimate(back(mean), back(mean - half), back(mean + half), len(values))


def _half_width(values: NDArray[np.float64]) -> float:
    count = len(values)
    return student_t_quantile(count - 1) * float(values.std(ddof=1)) / math.sqrt(count)


def student_t_quantile(freedom: int) -> float:
    """Return Student's t that 90 % of cases stay within, both sides together.

    >>> round(student_t_quantile(2), 3)
    2.92
    """
    return float(stdtrit(freedom, (1 + CONFIDENCE_LEVEL) / 2))


def estimate_from_steps(value: float, seconds: NDArray[np.float64]) -> Estimate:
    """Return one run's rate with an interval from the spread of its own steps.

    Neighbouring steps are alike, so they are first averaged in blocks of about
    the square root of their number; then Student-t on the blocks' logarithms,
    which is wide where there are few. One step has no spread.
    """
    count = len(seconds)
    if count < 2 or not seconds.min() > 0:
        return Estimate(value)
    size = math.isqrt(count) if count >= 8 else 1
    blocks = seconds[: count // size * size].reshape(-1, size).mean(axis=1)
    half = _half_width(np.log(blocks)) if np.ptp(blocks) > 1e-12 * blocks.max() else 0.0
    return Estimate(value, value * math.exp(-half), value * math.exp(half))
