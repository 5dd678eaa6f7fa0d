"""Laws of work to target, weighted by how well they explain the measured points.

    work(B) = E_min (1 + B / B_crit) · scatter

E_min is the least work, with small batches; at B_crit it has doubled, and so have the fewest steps
(McCandlish et al., arXiv:1812.06162). Laws lie on a grid of B_crit, E_min and scatter; a prior of
B_crit decides between equally good ones. Student's t keeps outliers from bending them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from scalewise.analysis.measure.estimate import CONFIDENCE_LEVEL, Estimate
from scalewise.errors import NotEnoughData, SpecError
from scalewise.validate import check_integer, check_positive

Floats = NDArray[np.float64]
MIN_WORK_RATIO = 0.8
"""Work at large batches may by chance be this share of that at small ones; less is refused."""
DEGREES_OF_FREEDOM = 4
"""Of all Student t distributions here: heavy tails, which tolerate outliers."""
T_HALF_WIDTH = float(stdtrit(DEGREES_OF_FREEDOM, (1 + CONFIDENCE_LEVEL) / 2))
"""Half the width of their 90 % interval, in scales."""
RUN_SCATTER = 0.05
"""Scatter of a single run around the mean of many, in logarithms; set by hand."""
SCATTER_SPREAD = 0.5
"""Spread of the scatter between workloads, in logarithms."""
MIN_SPREAD = 0.01
"""A critical batch is never known better than this, in logarithms."""


@dataclass(frozen=True, slots=True)
class Learned:
    """The prior of a workload, learned from published tables."""

    usual: float
    """Logarithm of the typical critical batch over the largest measured batch."""
    spread: float
    """Spread of that logarithm."""
    scatter: float
    """Scatter of batches around their law, in logarithms."""
    widen: float
    """Factor on intervals so that they cover nine of ten larger batches."""


@dataclass(frozen=True, eq=False)
class Laws:
    """Laws by their logarithms of B_crit and E_min. The weights sum to 1."""

    critical: Floats
    min_work: Floats
    weights: Floats
    scatter: float
    """Scatter of batches around their law, in logarithms: the mean of all laws."""
    count: int
    """The number of measured batches."""
    widen: float
    """Factor on intervals."""

    def log_work(self, batch: float) -> Floats:
        """Return the logarithm of the work that each law expects."""
        return self.min_work + np.log1p(batch * np.exp(-self.critical))

    def estimate(self, logs: Floats, scatter: float = 0.0) -> Estimate:
        """Return a quantity by weighted quantiles of its logarithms, widened by ``scatter``."""
        unique, inverse = np.unique(logs, return_inverse=True)
        weights = np.bincount(inverse, self.weights)
        cumulative = np.cumsum(weights) - weights / 2
        levels = ((1 - CONFIDENCE_LEVEL) / 2, 0.5, (1 + CONFIDENCE_LEVEL) / 2)
        low, middle, high = (float(np.interp(level, cumulative, unique)) for level in levels)
        extra = T_HALF_WIDTH * scatter
        down, up = (self.widen * math.hypot(end - middle, extra) for end in (low, high))
        return Estimate(
            math.exp(middle), math.exp(middle - down), math.exp(middle + up), self.count
        )


def validate_points(points: Sequence[Sequence[float]]) -> Floats:
    """Return rows of batches, work and runs (1 if unknown), by batch; refuse impossible ones.

    >>> validate_points([(512, 44.0), (256, 41.0)])[1]
    array([41., 44.])
    """
    if not points:
        raise NotEnoughData("no work to target is known", hint="give (global batch, work) points")
    for point in points:
        if len(point) not in (2, 3):
            hint = "write (global batch, work) or (global batch, work, runs)"
            raise SpecError(f"not a point: {tuple(point)!r}", hint=hint)
        check_positive("batch", point[0], example=256)
        check_positive("work", point[1], example=40.0)
        if len(point) == 3:
            check_integer("runs", point[2], minimum=1)
    rows = [(*point, 1)[:3] for point in sorted(points, key=lambda point: point[0])]
    sorted_points = np.array(rows, float).T
    batches, work, _ = sorted_points
    repeated = batches[1:][np.diff(batches) == 0]
    if len(repeated):
        raise SpecError(
            f"batch {repeated[0]:,.12g} appears twice",
            hint="give the mean of their work, and how many runs it is of",
        )
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


def weigh(points: Floats, prior: tuple[float, float], learned: Learned) -> Laws:
    """Return the laws with their posterior weights, without negligible ones; ``prior`` is middle
    and spread of log B_crit. Axes: B_crit, scatter, E_min and, before the sum over them, points.
    """
    batches, work, runs = points
    middle, spread = prior
    critical_steps = np.linspace(-6, 6, 401)
    scatter_steps, work_steps = np.linspace(-2, 2, 5), np.linspace(-8, 8, 25)
    critical = middle + spread * critical_steps
    scatter = learned.scatter * np.exp(SCATTER_SPREAD * scatter_steps)
    scale = np.sqrt(scatter[:, None] ** 2 + RUN_SCATTER**2 / runs)
    precision = (scale**-2).sum(axis=1) ** -0.5
    # The log E_min that each point alone implies; the grid lies around their median.
    implied = np.log(work) - np.log1p(batches * np.exp(-critical)[:, None])
    min_work = np.median(implied, axis=1)[:, None, None] + precision[:, None] * work_steps
    residuals = (implied[:, None, None] - min_work[..., None]) / scale[:, None]
    log_weights = (
        (_log_student(residuals) - np.log(scale)[:, None]).sum(axis=-1)
        + np.log(precision)[:, None]
        + _log_student(critical_steps)[:, None, None]
        - (scatter_steps**2 / 2)[:, None]
    )
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    relevant = weights > 1e-9
    return Laws(
        critical=np.broadcast_to(critical[:, None, None], weights.shape)[relevant],
        min_work=min_work[relevant],
        weights=weights[relevant] / weights[relevant].sum(),
        scatter=float(weights.sum(axis=(0, 2)) @ scatter),
        count=len(batches),
        widen=learned.widen,
    )


def _log_student(deviation: Floats) -> Floats:
    """Return the logarithm of the Student t density, without its constant."""
    exponent = -(DEGREES_OF_FREEDOM + 1) / 2
    return np.asarray(exponent * np.log1p(deviation**2 / DEGREES_OF_FREEDOM))


def stated_prior(value: float, low: float, high: float) -> tuple[float, float]:
    """Return the prior of a critical batch that the user gave with its 90 % interval."""
    return math.log(value), max(math.log(high / low) / 2 / T_HALF_WIDTH, MIN_SPREAD)
