"""A measured number, its 90 % interval, and how often it was measured."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from scalewise.errors import NotEnoughData

CONFIDENCE_LEVEL = 0.90
"""The share of intervals that should contain the true value, in all of scalewise."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its interval; ``low`` and ``high`` are None if the spread is unknown."""

    value: float
    low: float | None = None
    high: float | None = None
    count: int = 1

    @classmethod
    def of(cls, values: Sequence[float]) -> "Estimate":
        """Summarize repeats of a positive quantity: geometric mean, Student-t on the logarithms.

        >>> Estimate.of([100.0, 100.0])
        Estimate(value=100.0, low=100.0, high=100.0, count=2)
        """
        return _summary(values, math.log, math.exp)

    @classmethod
    def of_shares(cls, values: Sequence[float]) -> "Estimate":
        """Summarize repeats of a quantity that may be 0: mean, and Student-t on the values."""
        return _summary(values, float, float)

    def __truediv__(self, other: "Estimate") -> "Estimate":
        """Return the ratio of independent estimates. The squares of the logarithmic half-widths are
        added, lower and upper ones separately. With few repeats, this interval is too wide.
        """
        value = self.value / other.value
        count = min(self.count, other.count)
        if self.low is None or self.high is None or other.low is None or other.high is None:
            return Estimate(value, count=count)
        down = math.hypot(_log_ratio(self.value, self.low), _log_ratio(other.high, other.value))
        up = math.hypot(_log_ratio(self.high, self.value), _log_ratio(other.value, other.low))
        return Estimate(value, value * math.exp(-down), value * math.exp(up), count)

    def __mul__(self, factor: float) -> "Estimate":
        """Return the estimate times an exact factor, for example into another unit."""
        return self.through(lambda value: value * factor)

    def through(self, function: Callable[[float], float]) -> "Estimate":
        """Return the estimate with a monotonic function applied to the value and the interval."""
        if self.low is None or self.high is None:
            return Estimate(function(self.value), count=self.count)
        low, high = sorted((function(self.low), function(self.high)))
        return Estimate(function(self.value), low, high, self.count)

    def widened(self, error: float) -> "Estimate":
        """Return the estimate with an independent relative error added to its interval.

        >>> Estimate(100.0, 90.0, 110.0).widened(0.0)
        Estimate(value=100.0, low=90.0, high=110.0, count=1)
        """
        if not error or self.low is None or self.high is None:
            return self
        extra = abs(self.value) * error
        low = self.value - math.hypot(self.value - self.low, extra)
        if self.low > 0:  # A positive quantity stays positive.
            low = max(low, self.low / (1 + error))
        high = self.value + math.hypot(self.high - self.value, extra)
        return Estimate(self.value, low, high, self.count)


def _log_ratio(larger: float, smaller: float) -> float:
    return math.log(larger / smaller) if smaller > 0 else math.inf


def estimate_if_all_known(values: Sequence[float | None]) -> Estimate | None:
    """Summarize repeats of a positive quantity; None if any value is None or 0.

    >>> estimate_if_all_known([100.0, None]) is None
    True
    """
    numbers = [value for value in values if value]
    return Estimate.of(numbers) if len(numbers) == len(values) else None


def _summary(
    values: Sequence[float],
    transform: Callable[[float], float],
    inverse: Callable[[float], float],
) -> Estimate:
    """Return the mean of the transformed values with its interval, transformed back."""
    if not values:
        raise NotEnoughData("no values to summarize: no run was measured")
    if len(values) == 1:
        return Estimate(values[0])
    transformed = np.array([transform(value) for value in values])
    if np.ptp(transformed) <= 1e-15 * abs(transformed).max():  # Equal up to rounding.
        return Estimate(values[0], values[0], values[0], len(values))
    mean, half = float(transformed.mean()), _half_width(transformed)
    return Estimate(inverse(mean), inverse(mean - half), inverse(mean + half), len(values))


def _half_width(values: NDArray[np.float64]) -> float:
    count = len(values)
    return student_t_quantile(count - 1) * float(values.std(ddof=1)) / math.sqrt(count)


def student_t_quantile(freedom: int) -> float:
    """Return the two-sided 90 % quantile of Student's t with ``freedom`` degrees of freedom.

    >>> round(student_t_quantile(2), 3)
    2.92
    """
    return float(stdtrit(freedom, (1 + CONFIDENCE_LEVEL) / 2))


def estimate_from_steps(value: float, seconds: NDArray[np.float64]) -> Estimate:
    """Return one run's rate (``value``) with an interval from the spread of its steps' seconds.
    Neighbouring steps are correlated, so Student-t takes the mean of each block of √count steps.
    """
    count = len(seconds)
    if count < 2 or not seconds.min() > 0:
        return Estimate(value)
    block = count // count_blocks(count)
    means = seconds[: count // block * block].reshape(-1, block).mean(axis=1)
    half = _half_width(np.log(means)) if np.ptp(means) > 1e-12 * means.max() else 0.0
    return Estimate(value, value * math.exp(-half), value * math.exp(half))


def count_blocks(steps: int) -> int:
    """Return into how many blocks of equal length ``estimate_from_steps`` divides steps."""
    block = math.isqrt(steps) if steps >= 8 else 1  # Fewer steps would make too few blocks.
    return steps // block
