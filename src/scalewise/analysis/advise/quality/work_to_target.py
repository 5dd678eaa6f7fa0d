"""Work, steps and time to a target at any global batch, and where more devices stop paying.

    work(B)  = E_min (1 + B / B_crit)
    steps(B) = S_min (1 + B_crit / B)        S_min = E_min / B_crit

Below the critical batch B_crit more devices save time, above it they mostly add work.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from scalewise.analysis.advise.quality.target_posterior import (
    Laws,
    Learned,
    stated_prior,
    validate_points,
    weigh_laws,
)
from scalewise.analysis.measure import Estimate
from scalewise.analysis.number_format import (
    format_number,
    format_rounded,
    format_rounded_estimate,
)
from scalewise.catalog.convergence import find_table
from scalewise.errors import NotEnoughData, SpecError
from scalewise.validate import check_positive

LEARNED = Learned(log_critical_ratio=0.898, spread=1.52, scatter=0.0375, interval_factor=1.15)
"""From all convergence tables of the catalog; ``benchmarks/target.py`` computes and prints it."""
STATED_FACTOR = 2.0
"""A critical batch without an interval is trusted within this factor; set by hand."""
NOISE_FACTOR = 3.0
"""Widens the interval of a critical batch that is a gradient noise scale; set by hand."""
VAGUE_FACTOR = 4.0
"""One more measurement is advised if a critical batch's high / low is at least this."""
MIN_SAVED_SHARE = 0.1
"""More devices stop paying where a doubling saves less than this share of the steps."""


@dataclass(frozen=True, eq=False)
class WorkToTarget:
    """The law of work to target, from points at several batches, or from one point and B_crit."""

    laws: Laws
    largest: float
    """The largest measured batch."""
    unit: str
    """The unit of work, such as samples or epochs."""
    samples: float | None
    """Samples in one unit of work; None makes steps and times unknown."""

    @cached_property
    def critical(self) -> Estimate:
        """B_crit: the batch at which work and steps are both twice their minimum."""
        return self.laws.estimate(self.laws.log_critical)

    @cached_property
    def least_work(self) -> Estimate:
        """E_min: the work that the smallest batches need."""
        return self.laws.estimate(self.laws.log_min_work)

    @cached_property
    def least_steps(self) -> Estimate | None:
        """S_min: the lower bound of steps for any batch and any number of devices."""
        if self.samples is None:
            return None
        return self.laws.estimate(self.laws.log_min_work - self.laws.log_critical) * self.samples

    @cached_property
    def enough(self) -> Estimate:
        """The batch from which a doubling saves less than a tenth of the steps: 4 B_crit."""
        return self.critical * (1 / (2 * MIN_SAVED_SHARE) - 1)  # Solves saved(B) = that share.

    def work(self, batch: float) -> Estimate:
        """Return the mean work to target of runs that are tuned for this batch."""
        check_positive("batch", batch, example=256)
        return self.laws.estimate(self.laws.log_work(batch), self.laws.scatter)

    def steps(self, batch: float) -> Estimate | None:
        """Return the optimizer steps to target."""
        return None if self.samples is None else self.work(batch) * (self.samples / batch)

    def time(
        self,
        batch: float,
        *,
        throughput: Estimate | None = None,
        step: Estimate | None = None,
        fixed: float = 0.0,
    ) -> Estimate | None:
        """Return seconds to target from samples per second, or seconds per step, plus ``fixed``."""
        if throughput is not None and step is None:
            check_positive("throughput", throughput.value, example=1000.0)
            rate = throughput
        elif step is not None and throughput is None:
            rate = _steps_per_second(step) * batch
        else:
            raise SpecError(
                "time to target needs either the throughput or the time of a step",
                hint="give throughput= in samples per second, or step= in seconds",
            )
        if self.samples is None:
            return None
        return (self.work(batch) * self.samples / rate).through(lambda seconds: seconds + fixed)

    def floor(self, step: Estimate) -> Estimate | None:
        """Return the lower bound in seconds for any number of devices: S_min steps in sequence."""
        return None if self.least_steps is None else self.least_steps / _steps_per_second(step)

    def useful(self, batch: float) -> Estimate:
        """Return E_min / work(batch): the share of the work that the smallest batches need too."""
        return self.critical.through(lambda critical: critical / (critical + batch))

    def saved(self, batch: float) -> Estimate:
        """Return the share of the steps that a batch twice as large would save."""
        return self.critical.through(lambda critical: critical / (critical + batch) / 2)

    def reach(self, batch: float) -> float:
        """Return this batch over the largest measured one; above 1, the law is extrapolated."""
        return batch / self.largest

    def __str__(self) -> str:
        work, critical = map(format_rounded, (self.least_work.value, self.critical.value))
        return f"work(B) = {work} (1 + B / {critical}) {self.unit}"


def work_to_target(
    points: Sequence[Sequence[float]],
    *,
    critical: Estimate | float | None = None,
    unit: str = "samples",
    samples: float | None = None,
    learned: Learned = LEARNED,
) -> WorkToTarget:
    """Return the law of work to target from points (global batch, work[, runs]).

    At least two batches are needed, or one and the critical batch, whose interval says how precise
    it is. A ``unit`` of work has ``samples`` samples (for epochs, the size of the data set).

    >>> law = work_to_target([(100, 1000.0)], critical=Estimate(900.0, 800.0, 1000.0))
    >>> round(law.work(900).value, -1)
    1800.0
    """
    measured = validate_points(points)
    count, largest = measured.shape[1], float(measured[0, -1])
    if samples is not None:
        check_positive("samples", samples, example=1_281_167)
    elif unit == "samples":
        samples = 1.0
    stated = None if critical is None else _value_low_high(critical)
    if stated is None and count < 2:
        raise NotEnoughData(
            f"one batch ({format_number(largest)}) does not show how work grows with it",
            hint="measure one at least twice as large, or give critical=, such as a noise scale",
        )
    if stated and count > 1:
        fitted = _value_low_high(work_to_target(points, learned=learned).critical)
        (_, low, high), (_, fitted_low, fitted_high) = stated, fitted
        if high < fitted_low or low > fitted_high:
            raise SpecError(
                "the points show a critical batch of "
                f"{format_rounded_estimate(Estimate(*fitted))}, and "
                f"{format_rounded_estimate(Estimate(*stated))} was given",
                hint="are both in samples, not tokens? leave critical out, or widen its interval",
            )
    learned_prior = math.log(largest) + learned.log_critical_ratio, learned.spread
    prior = stated_prior(*stated) if stated else learned_prior
    return WorkToTarget(weigh_laws(measured, prior, learned), largest, unit, samples)


@cache
def published_work(workload: str) -> WorkToTarget:
    """Return the work to target of a workload with a convergence table in the catalog."""
    table = find_table(workload)
    return work_to_target(table.points, unit=table.unit)


def critical_from_noise(noise: Estimate) -> Estimate:
    """Return the critical batch from a gradient noise scale: the same value, a wider interval,
    because the noise scale grows during training and was averaged over a run.

    >>> critical_from_noise(Estimate(3000.0, 2800.0, 3300.0)).high
    9900.0
    """
    value, low, high = _value_low_high(noise, factor=1.0)
    return Estimate(value, low / NOISE_FACTOR, high * NOISE_FACTOR, noise.count)


def _value_low_high(
    critical: Estimate | float, factor: float = STATED_FACTOR
) -> tuple[float, float, float]:
    """Return value, low and high; if unknown, low is value / factor and high value × factor."""
    estimate = critical if isinstance(critical, Estimate) else Estimate(critical)
    check_positive("critical", estimate.value, example=8192)
    low = estimate.value / factor if estimate.low is None else estimate.low
    high = estimate.value * factor if estimate.high is None else estimate.high
    if not 0 < low <= estimate.value <= high < math.inf:
        raise SpecError(
            f"a critical batch of {estimate.value:g} does not lie from {low:g} to {high:g}",
            hint="write Estimate(value, low, high)",
        )
    return estimate.value, low, high


def _steps_per_second(step: Estimate) -> Estimate:
    check_positive("step", step.value, example=0.25)
    return step.through(lambda seconds: 1 / seconds)
