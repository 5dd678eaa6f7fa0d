"""Work, steps and time to a target at any global batch, and where more devices stop paying.

    work(B)  = E_min (1 + B / B_crit)
    steps(B) = S_min (1 + B_crit / B)        S_min = E_min / B_crit

A larger batch makes steps fewer, never fewer than S_min, and work larger, without
end: below the critical batch devices buy time, above it they mostly buy work.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from scalewise.analysis.advise.quality.points import Floats, checked
from scalewise.analysis.advise.quality.target_posterior import Laws, Learned, stated, usual, weigh
from scalewise.analysis.measure import Estimate
from scalewise.catalog.convergence import table
from scalewise.errors import NotEnoughData, SpecError
from scalewise.validate import positive

LEARNED = Learned(usual=0.898, spread=1.52, scatter=0.0375, widen=1.15)
"""From the convergence tables of the catalog, all of them; ``benchmarks/target.py`` prints it."""
GIVEN = 2.0
"""A critical batch that is given without a range is taken as known within this factor; by hand."""
BY_NOISE = 3.0
"""A gradient noise scale tells the critical batch within this factor beyond its range; by hand."""
VAGUE = 4.0
"""A critical batch whose range is wider than this factor asks for one more measurement."""
SAVING = 0.1
"""More devices buy almost nothing where a doubling saves less than this share of the steps."""
INSTEAD = (
    "instead, give further devices to other runs, to a larger model, or to splitting the same "
    "batch (tensor, pipeline)"
)
Range = tuple[float, float, float]
"""Value, low and high."""


@dataclass(frozen=True, eq=False)
class Target:
    """What it takes to reach a target, from points at a few batches or from one and B_crit."""

    laws: Laws
    largest: float
    """The largest batch that was measured."""
    count: int
    """How many batches were."""
    unit: str
    """What work is counted in."""
    samples: float | None
    """Samples in one unit of work; without it steps and times are not known."""
    widen: float

    @cached_property
    def critical(self) -> Estimate:
        """The batch at which work and steps are both twice their least."""
        return self._estimate(self.laws.critical)

    @cached_property
    def least_work(self) -> Estimate:
        """E_min: what the smallest batches need."""
        return self._estimate(self.laws.least)

    @cached_property
    def least_steps(self) -> Estimate | None:
        """S_min: what no batch, and no number of devices, gets below."""
        if self.samples is None:
            return None
        return self._estimate(self.laws.least - self.laws.critical) * self.samples

    @cached_property
    def enough(self) -> Estimate:
        """The batch from which a doubling saves less than a tenth of the steps: 4 B_crit."""
        return self.critical * (1 / (2 * SAVING) - 1)

    def work(self, batch: float) -> Estimate:
        """Return the work to target, as the mean of many runs that are tuned for this batch."""
        positive("batch", batch, example=256)
        return self._estimate(self.laws.log_work(batch), self.laws.scatter)

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
        """Return seconds to target, from samples per second or from seconds per step.

        ``fixed`` seconds, such as those of the start, are added.
        """
        if throughput is not None and step is None:
            positive("throughput", throughput.value, example=1000.0)
            rate = throughput
        elif step is not None and throughput is None:
            rate = _rate(step) * batch
        else:
            raise SpecError(
                "time to target needs either the throughput or the time of a step",
                hint="give throughput= in samples per second, or step= in seconds",
            )
        if self.samples is None:
            return None
        return (self.work(batch) * self.samples / rate).through(lambda seconds: seconds + fixed)

    def floor(self, step: Estimate) -> Estimate | None:
        """Return the seconds that no number of devices beats: the fewest steps, one by one."""
        if self.least_steps is None:
            return None
        return self.least_steps / _rate(step)

    def useful(self, batch: float) -> Estimate:
        """Return the share of the work that small batches would have needed as well."""
        return self.critical.through(lambda critical: critical / (critical + batch))

    def saved(self, batch: float) -> Estimate:
        """Return the share of the steps that a batch twice as large would save."""
        return self.critical.through(lambda critical: critical / (critical + batch) / 2)

    def reach(self, batch: float) -> float:
        """Return how many times beyond the largest measured batch this one lies."""
        return batch / self.largest

    def limit(self, per_device: int | None = None) -> str:
        """Say from which batch more devices buy almost nothing, and what to do instead."""
        where = _ranged(self.enough)
        if per_device:
            devices = math.ceil(self.enough.value / per_device)
            where += f", {_short(devices)} devices of {_short(per_device)}"
        return (
            f"From a global batch of {where} on, twice the devices save less than "
            f"{100 * SAVING:.0f} % of the steps: the critical batch is {_ranged(self.critical)}"
            f"{self._fewest()}; {INSTEAD}.{self._next()}"
        )

    def verdict(self, batch: float) -> str:
        """Say what a doubling of this batch, with twice the devices, would buy."""
        times = batch / self.critical.value
        told = (
            f"A global batch of {_short(batch)} is {times:.2g} times the critical "
            f"{_ranged(self.critical)}: doubling it with twice the devices saves "
            f"{100 * self.saved(batch).value:.0f} % of the steps "
            f"for {100 * times / (1 + times):.0f} % more work"
        )
        if times <= 1:
            return f"{told}."
        buys = "almost nothing" if batch >= self.enough.value else "little"
        near = _short(self.critical.value)
        return (
            f"{told}{self._fewest()}, so more devices buy {buys}; "
            f"{INSTEAD}, and keep the global batch near {near}."
        )

    def __str__(self) -> str:
        least, critical = _short(self.least_work.value), _short(self.critical.value)
        return f"work(B) = {least} (1 + B / {critical}) {self.unit}"

    def _fewest(self) -> str:
        if self.least_steps is None:
            return ""
        return f", and no number of devices needs fewer than {_ranged(self.least_steps)} steps"

    def _next(self) -> str:
        """Ask for a measurement where the critical batch is hardly known."""
        _, low, high = _range(self.critical)
        if high < VAGUE * low:
            return ""
        return (
            f" The critical batch is known to a factor of {high / low:.0f} only: "
            f"measure a batch of {_short(4 * self.largest)} too."
        )

    def _estimate(self, logs: Floats, off: float = 0.0) -> Estimate:
        low, middle, high = self.laws.interval(logs, off)
        return Estimate(
            math.exp(middle),
            math.exp(middle - self.widen * (middle - low)),
            math.exp(middle + self.widen * (high - middle)),
            self.count,
        )


def work_to_target(
    points: Sequence[Sequence[float]],
    *,
    critical: Estimate | float | None = None,
    unit: str = "samples",
    samples: float | None = None,
    known: Learned = LEARNED,
) -> Target:
    """Return what it takes to reach a target, from points (global batch, work[, runs]).

    Without ``critical`` at least two batches are needed; with it one is enough, and
    the range of a critical batch says how far it is trusted. Work is in ``unit``,
    which has so many ``samples``: epochs need the size of the data set.

    >>> twice = work_to_target([(100, 1000.0)], critical=Estimate(900.0, 800.0, 1000.0))
    >>> round(twice.work(900).value, -1)
    1800.0
    """
    measured = checked(points)
    if samples is not None:
        positive("samples", samples, example=1_281_167)
    elif unit == "samples":
        samples = 1.0
    given = None if critical is None else _range(critical)
    if given is None and len(measured) < 2:
        raise NotEnoughData(
            f"one batch ({_short(measured.largest)}) does not show how work grows with the batch",
            hint="measure one at least twice as large, or give critical=, such as a noise scale",
        )
    if given and len(measured) > 1:
        own = work_to_target(points, known=known).critical
        _refuse_contradiction(given, _range(own))
    believed = stated(*given) if given else usual(measured, known)
    laws = weigh(measured, believed, known.scatter)
    return Target(laws, measured.largest, len(measured), unit, samples, known.widen)


@cache
def published(workload: str) -> Target:
    """Return the work to target of a workload whose convergence table is in the catalog."""
    known = table(workload)
    return work_to_target(known.points, unit=known.unit)


def by_noise(noise: Estimate) -> Estimate:
    """Return the critical batch that a gradient noise scale tells: the same, less sure.

    The noise scale grows while a model learns, and is an average over a run: its own
    interval says how well it was measured, not how well it tells the critical batch.

    >>> by_noise(Estimate(3000.0, 2800.0, 3300.0)).high
    9900.0
    """
    value, low, high = _range(noise, unknown=1.0)
    return Estimate(value, low / BY_NOISE, high * BY_NOISE, noise.count)


def _range(critical: Estimate | float, unknown: float = GIVEN) -> Range:
    """Return a critical batch with its range."""
    given = critical if isinstance(critical, Estimate) else Estimate(critical)
    positive("critical", given.value, example=8192)
    low = given.value / unknown if given.low is None else given.low
    high = given.value * unknown if given.high is None else given.high
    if not 0 < low <= given.value <= high < math.inf:
        raise SpecError(
            f"a critical batch of {given.value:g} does not lie from {low:g} to {high:g}",
            hint="write Estimate(value, low, high)",
        )
    return given.value, low, high


def _refuse_contradiction(given: Range, own: Range) -> None:
    """Refuse a critical batch that the points by themselves rule out."""
    if given[2] < own[1] or given[1] > own[2]:
        raise SpecError(
            f"the points say a critical batch of {_ranged(Estimate(*own))}, "
            f"and {_ranged(Estimate(*given))} was given",
            hint="are both in samples, not tokens? leave critical out, or give it a wider range",
        )


def _rate(step: Estimate) -> Estimate:
    """Return steps per second."""
    positive("step", step.value, example=0.25)
    return step.through(lambda seconds: 1 / seconds)


def _ranged(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return _short(estimate.value)
    return f"{_short(estimate.value)} ({_short(estimate.low)} to {_short(estimate.high)})"


def _short(value: float) -> str:
    """Return a number with three figures, more where it is whole and small.

    >>> _short(46891.2), _short(256), _short(34.56), _short(12288)
    ('46,900', '256', '34.6', '12,288')
    """
    if float(value).is_integer() and abs(value) < 1e6:
        return f"{value:,.0f}"
    return f"{float(f'{value:.3g}'):,.12g}"
