"""Candidate laws of work to target, weighted by how well they fit the measured points.

    work(B) = E_min (1 + B / B_crit) · scatter

At the critical batch B_crit, work is twice its minimum E_min (McCandlish et al., arXiv:1812.06162).
A law is a point on a grid of B_crit, E_min and scatter; a prior on B_crit decides between laws that
fit equally well. Residuals have a Student t distribution, so outliers have little influence.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from scalewise.analysis.measure.estimate import CONFIDENCE_LEVEL, Estimate
from scalewise.errors import NotEnoughData, SpecError, shown
from scalewise.validate import check_integer, check_positive

Floats = NDArray[np.float64]
MIN_WORK_RATIO = 0.8
"""The lowest accepted ratio of work at large batches to work at small ones; below 1 by chance."""
DEGREES_OF_FREEDOM = 4
"""Of all Student t distributions in this file: few, so that heavy tails tolerate outliers."""
T_HALF_WIDTH = float(stdtrit(DEGREES_OF_FREEDOM, (1 + CONFIDENCE_LEVEL) / 2))
"""Half the width of the 90 % interval of such a distribution with scale 1."""
RUN_SCATTER = 0.05
"""Scatter of log work of a single run around the mean of many runs; set by hand."""
SCATTER_SPREAD = 0.5
"""Standard deviation of log scatter between workloads."""
MIN_SPREAD = 0.01
"""The smallest scale of a prior on log B_crit, however narrow the stated interval is."""


@dataclass(frozen=True, slots=True)
class Learned:
    """Parameters of the prior and of the intervals, learned from published tables."""

    log_critical_ratio: float
    """Typical logarithm of B_crit over the largest measured batch."""
    spread: float
    """Scale of that logarithm's Student t distribution."""
    scatter: float
    """Typical scatter of log work at a batch around the law."""
    interval_factor: float
    """Widens intervals so that they cover nine of ten batches beyond the measured ones."""


@dataclass(frozen=True, eq=False)
class Laws:
    """Candidate laws: element i of each array belongs to law i. The weights sum to 1."""

    log_critical: Floats
    log_min_work: Floats
    weights: Floats
    scatter: float
    """Scatter of log work at a batch around the law: the weighted mean of all laws."""
    count: int
    """The number of measured batches."""
    interval_factor: float
    """Widens all intervals."""

    def log_work(self, batch: float) -> Floats:
        """Return the logarithm of the work that each law expects."""
        return self.log_min_work + np.log1p(batch * np.exp(-self.log_critical))

    def estimate(self, logs: Floats, scatter: float = 0.0) -> Estimate:
        """Return a quantity from its logarithm under each law; ``scatter`` widens the interval."""
        unique, inverse = np.unique(logs, return_inverse=True)
        weights = np.bincount(inverse, self.weights)
        cumulative = np.cumsum(weights) - weights / 2
        levels = ((1 - CONFIDENCE_LEVEL) / 2, 0.5, (1 + CONFIDENCE_LEVEL) / 2)
        low, middle, high = (float(np.interp(level, cumulative, unique)) for level in levels)
        extra = T_HALF_WIDTH * scatter
        down, up = (self.interval_factor * math.hypot(end - middle, extra) for end in (low, high))
        return Estimate(
            math.exp(middle), math.exp(middle - down), math.exp(middle + up), self.count
        )


def validate_points(points: Sequence[Sequence[float]]) -> Floats:
    """Return three rows, sorted by batch: batches, work, runs (1 if unknown); refuse bad points.

    >>> validate_points([(512, 44.0), (256, 41.0)])[1]
    array([41., 44.])
    """
    if not points:
        raise NotEnoughData("no work to target is known", hint="give (global batch, work) points")
    for point in points:
        if len(point) not in (2, 3):
            hint = "write (global batch, work) or (global batch, work, runs)"
            raise SpecError(f"not a point: {shown(tuple(point))}", hint=hint)
        check_positive("batch", point[0], example=256)
        check_positive("work", point[1], example=40.0)
        if len(point) == 3:
            check_integer("runs", point[2], minimum=1)
    rows = [(*point, 1)[:3] for point in sorted(points, key=lambda point: point[0])]
    sorted_points = np.array(rows, float).T
    batches, work, _ = sorted_points
    repeated = batches[1:][np.diff(batches) == 0]
    if len(repeated):
        hint = "give it once: (global batch, mean work, runs)"
        raise SpecError(f"batch {repeated[0]:,.12g} appears twice", hint=hint)
    if half := len(work) // 2:
        # Medians ignore an outlier.
        small, large = float(np.median(work[:half])), float(np.median(work[-half:]))
        if large < MIN_WORK_RATIO * small:
            raise SpecError(
                f"work falls from {small:,.6g} at small batches to {large:,.6g} at large ones, "
                "and a larger batch never needs less",
                hint="give work in samples or epochs, not in steps; tune the learning rate at "
                "each batch",
            )
    return sorted_points


def weigh_laws(points: Floats, prior: tuple[float, float], learned: Learned) -> Laws:
    """Return the laws with their posterior weights, without negligible ones; ``prior`` is middle
    and scale of log B_crit. The axes of arrays are B_crit, scatter, E_min and sometimes points.
    """
    batches, work, runs = points
    middle, spread = prior
    # Each axis of the grid, in units of its own scale.
    critical_steps = np.linspace(-6, 6, 401)
    scatter_steps, work_steps = np.linspace(-2, 2, 5), np.linspace(-8, 8, 25)
    log_critical = middle + spread * critical_steps
    scatter = learned.scatter * np.exp(SCATTER_SPREAD * scatter_steps)
    scale = np.sqrt(scatter[:, None] ** 2 + RUN_SCATTER**2 / runs)
    standard_error = (scale**-2).sum(axis=1) ** -0.5
    # The log E_min that each point alone implies; the grid lies around their median.
    implied = np.log(work) - np.log1p(batches * np.exp(-log_critical)[:, None])
    log_min_work = np.median(implied, axis=1)[:, None, None] + standard_error[:, None] * work_steps
    residuals = (implied[:, None, None] - log_min_work[..., None]) / scale[:, None]
    log_weights = (
        (_log_student(residuals) - np.log(scale)[:, None]).sum(axis=-1)
        + np.log(standard_error)[:, None]  # Accounts for the grid's spacing in log E_min.
        + _log_student(critical_steps)[:, None, None]
        - (scatter_steps**2 / 2)[:, None]
    )
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    relevant = weights > 1e-9
    return Laws(
        log_critical=np.broadcast_to(log_critical[:, None, None], weights.shape)[relevant],
        log_min_work=log_min_work[relevant],
        weights=weights[relevant] / weights[relevant].sum(),
        scatter=float(weights.sum(axis=(0, 2)) @ scatter),
        count=len(batches),
        interval_factor=learned.interval_factor,
    )


def _log_student(deviation: Floats) -> Floats:
    """Return the logarithm of the Student t density, without its constant."""
    exponent = -(DEGREES_OF_FREEDOM + 1) / 2
    return np.asarray(exponent * np.log1p(deviation**2 / DEGREES_OF_FREEDOM))


def stated_prior(value: float, low: float, high: float) -> tuple[float, float]:
    """Return middle and scale of log B_crit from a stated value and its 90 % interval."""
    return math.log(value), max(math.log(high / low) / 2 / T_HALF_WIDTH, MIN_SPREAD)
