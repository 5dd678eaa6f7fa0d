"""Tests of a difference between two sides, each with few repeats.

A repeat is one run: steps of one run are correlated and say nothing about the noise between runs.
Ratios are tested on logarithms. The variance of a run is that of its own number of devices, if both
sides together have at least MIN_OWN_FREEDOM degrees of freedom. With fewer repeats it is pooled
over all numbers of devices, but never smaller than its own.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from scipy.special import chdtri, stdtr, stdtrit

from scalewise.analysis.measure import Estimate
from scalewise.analysis.measure.estimate import student_t_quantile

MIN_OWN_FREEDOM = 4
"""From three repeats a side on, the noise of a number of devices is its own."""
MIN_NOISE = 1e-3
"""Repeats of a run are taken to differ by at least this share: equal repeats may be chance."""
POWER = 0.9
"""The chance that a difference of the stated size is found."""
NOISE_CONFIDENCE = 0.7
"""The chance that the noise is not larger than planned with: few repeats show it only roughly."""
STATED_FREEDOM = 30
"""Degrees of freedom of an interval that a table states without its repeats."""
MAX_REPEATS = 200
"""More repeats are never asked for."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The repeats of one quantity: mean, and variance of a single repeat."""

    count: int
    mean: float
    variance: float | None = None
    """None if there is one repeat."""
    freedom: int = 0
    """Degrees of freedom of the variance."""

    @classmethod
    def of(cls, values: Sequence[float]) -> "Sample":
        """Summarize the values of repeats.

        >>> Sample.of([1.0, 3.0])
        Sample(count=2, mean=2.0, variance=2.0, freedom=1)
        """
        count = len(values)
        mean = math.fsum(values) / count
        if count == 1:
            return cls(1, mean)
        squares = math.fsum((value - mean) ** 2 for value in values)
        return cls(count, mean, squares / (count - 1), count - 1)

    @classmethod
    def of_logarithms(cls, values: Sequence[float]) -> "Sample":
        """Summarize the logarithms of positive values."""
        return cls.of([math.log(value) for value in values])

    @classmethod
    def of_estimate(cls, estimate: Estimate) -> "Sample":
        """Return the repeats behind an estimate, on the scale of logarithms; its interval may also
        be stated without repeats.
        """
        mean, count = math.log(estimate.value), estimate.count
        if not estimate.low or not estimate.high or estimate.low <= 0:
            return cls(count, mean)
        half = math.log(estimate.high / estimate.low) / 2
        freedom = count - 1 if count > 1 else STATED_FREEDOM
        error = half / student_t_quantile(freedom)
        return cls(count, mean, error**2 * count, freedom)


Pair = tuple[Sample, Sample]
Counts = tuple[int, int]
"""The repeats of both sides."""


@dataclass(frozen=True, slots=True)
class Noise:
    """The variance of a single repeat on one number of devices, and how well it is known."""

    variance: float
    freedom: int
    """Degrees of freedom for Student's t."""
    planned: float
    """The variance to plan with, which is mostly larger than the true one."""


def noise_of_pairs(pairs: Sequence[Pair], least: Sequence[float]) -> list[Noise] | None:
    """Return the noise of each pair (one for each number of devices); None if there is no repeat at
    all. ``least`` is the smallest variance that each pair may have.
    """
    freedoms = [a.freedom + b.freedom for a, b in pairs]
    sums = [sum((s.variance or 0.0) * s.freedom for s in pair) for pair in pairs]
    all_freedom = sum(freedoms)
    if not all_freedom:
        return None
    pooled = sum(sums) / all_freedom
    upper_bound = pooled * all_freedom / _chi_square(all_freedom)
    noises = []
    for freedom, total, minimum in zip(freedoms, sums, least, strict=True):
        variance = max(total / freedom if freedom else 0.0, minimum)
        if freedom < MIN_OWN_FREEDOM:
            variance, freedom = max(variance, pooled), all_freedom
        noises.append(Noise(variance, freedom, max(variance, upper_bound)))
    return noises


@dataclass(frozen=True, slots=True)
class Change:
    """The difference of two means (second − first), its standard error, and its p-value."""

    value: float
    error: float
    freedom: int
    shared: float = 0.0
    """The part of ``value`` that may have another cause than what is compared."""
    shared_error: float = 0.0

    @property
    def p(self) -> float:
        """The chance of a difference at least as large if nothing but ``shared`` differs."""
        own, error = abs(self.value - self.shared), math.hypot(self.error, self.shared_error)
        if not error:
            return 1.0 if not own else 0.0
        return float(2 * stdtr(self.freedom, -own / error))

    def interval(self, confidence: float = 0.9) -> tuple[float, float]:
        """Return the interval of the difference, widened to that of the rest without ``shared``."""
        quantile = float(stdtrit(self.freedom, (1 + confidence) / 2))
        low, high = self.value - quantile * self.error, self.value + quantile * self.error
        rest, error = self.value - self.shared, math.hypot(self.error, self.shared_error)
        if self.shared > 0:
            low = min(low, rest - quantile * error)
        if self.shared < 0:
            high = max(high, rest + quantile * error)
        return low, high

    def estimate(self, transform: Callable[[float], float] = float, count: int = 1) -> Estimate:
        """Return the difference with its 90 % interval, through a monotonic function."""
        low, high = self.interval()
        return Estimate(transform(self.value), transform(low), transform(high), count)


def change_of(pair: Pair, noise: Noise, further_error: float = 0.0) -> Change:
    """Return the difference of a pair; ``further_error`` is one that repeats do not show."""
    a, b = pair
    error = math.sqrt(noise.variance * (1 / a.count + 1 / b.count) + further_error**2)
    return Change(b.mean - a.mean, error, noise.freedom)


def holm(p_values: Sequence[float], level: float) -> list[bool]:
    """Say which of several tests show a difference, with a chance of ``level`` for any false one.

    >>> holm([0.001, 0.04, 0.03], 0.05)
    [True, False, False]
    """
    shown = [False] * len(p_values)
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    for rank, index in enumerate(order):
        if p_values[index] > level / (len(p_values) - rank):
            break
        shown[index] = True
    return shown


def detectable(noise: Noise, counts: Counts, level: float, further: float = 0.0) -> float:
    """Return the smallest difference that a test at ``level`` finds with a chance of POWER."""
    return _quantiles(noise.freedom, level) * _planned_error(noise, counts, further)


def repeats_needed(
    noise: Noise, counts: Counts, level: float, wanted: float, further: float = 0.0
) -> int | None:
    """Return how many more repeats the side with fewer needs so that a difference of ``wanted`` is
    found with a chance of POWER; None if MAX_REPEATS do not suffice.
    """
    if detectable(noise, counts, level, further) <= wanted:
        return 0
    for total in range(min(counts) + 1, MAX_REPEATS + 1):
        larger = (max(counts[0], total), max(counts[1], total))
        own_freedom = sum(larger) - 2
        freedom = own_freedom if own_freedom >= MIN_OWN_FREEDOM else noise.freedom
        if _quantiles(freedom, level) * _planned_error(noise, larger, further) <= wanted:
            return total - min(counts)
    return None


def _planned_error(noise: Noise, counts: Counts, further: float) -> float:
    """Return the standard error of a difference, to plan with."""
    return math.sqrt(noise.planned * (1 / counts[0] + 1 / counts[1]) + further**2)


@cache
def _quantiles(freedom: int, level: float) -> float:
    """Return by how many standard errors a difference must exceed 0 to be found."""
    return float(stdtrit(freedom, 1 - level / 2) + stdtrit(freedom, POWER))


@cache
def _chi_square(freedom: int) -> float:
    """Return the value that a chi-square variable exceeds with a chance of NOISE_CONFIDENCE."""
    return float(chdtri(freedom, NOISE_CONFIDENCE))
