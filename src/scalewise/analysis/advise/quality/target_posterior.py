"""Every law of work to target that could have made the points, by how well it explains them.

    work(B) = E_min (1 + B / B_crit) · scatter

E_min is the least work that reaches the target, with small batches; at B_crit it
has doubled, and so have the fewest steps (McCandlish et al., arXiv:1812.06162).
Laws lie on a grid of B_crit, E_min and scatter. What is usual decides between laws that
the points cannot tell apart. Scatter is Student's, so that one odd point does
not bend the law.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from scalewise.analysis.advise.quality.points import Floats, Points
from scalewise.analysis.measure.estimate import CONFIDENCE_LEVEL

FREEDOM = 4
"""Degrees of freedom of all Student's distributions here: tails that forgive."""
WITHIN = float(stdtrit(FREEDOM, (1 + CONFIDENCE_LEVEL) / 2))
"""Their 90 % interval, in scales to either side."""
ONE_RUN = 0.05
"""How far a single run lies from the mean of many, as a logarithm; set by hand."""
UNSURE = 0.5
"""How far the scatter of one workload lies from the usual one, as a logarithm of it."""
LEAST_SPREAD = 0.01
"""A critical batch is never known better than this, as a logarithm."""


@dataclass(frozen=True, slots=True)
class Learned:
    """All that is known of a workload before any of it is seen."""

    usual: float
    """Where the critical batch usually is: the logarithm of its multiple of the largest batch."""
    spread: float
    """How far it may lie from there."""
    scatter: float
    """How far batches lie from their law, as a logarithm."""
    widen: float
    """What intervals are multiplied with to hold nine of ten larger batches."""


@dataclass(frozen=True, slots=True)
class Critical:
    """What is believed of a critical batch: the middle and the spread of its logarithm."""

    middle: float
    spread: float


@dataclass(frozen=True, eq=False)
class Laws:
    """Laws by their logarithms of B_crit and E_min; weights sum to 1."""

    critical: Floats
    least: Floats
    weights: Floats
    scatter: float
    """How far batches lie from their law, as a logarithm: the mean of all laws."""

    def log_work(self, batch: float) -> Floats:
        """Return the logarithm of the work that each law expects."""
        return self.least + np.log1p(batch * np.exp(-self.critical))

    def interval(self, values: Floats, off: float = 0.0) -> tuple[float, float, float]:
        """Return low, middle and high of what the laws say; ``off`` may be missed beside."""
        found, places = np.unique(values, return_inverse=True)
        weights = np.bincount(places, self.weights)
        held = np.cumsum(weights) - weights / 2
        levels = ((1 - CONFIDENCE_LEVEL) / 2, 0.5, (1 + CONFIDENCE_LEVEL) / 2)
        low, middle, high = (float(np.interp(level, held, found)) for level in levels)
        missed = WITHIN * off
        return (
            middle - math.hypot(middle - low, missed),
            middle,
            middle + math.hypot(high - middle, missed),
        )


def weigh(points: Points, believed: Critical, usual_scatter: float) -> Laws:
    """Return the laws that explain the points, as far as they do.

    Axes are B_crit, scatter, E_min and, where they still are there, points.
    """
    far, unlike, off = np.linspace(-6, 6, 401), np.linspace(-2, 2, 5), np.linspace(-8, 8, 25)
    critical = believed.middle + believed.spread * far
    scatter = usual_scatter * np.exp(UNSURE * unlike)
    scale = np.sqrt(scatter[:, None] ** 2 + ONE_RUN**2 / points.runs)
    sure = (scale**-2).sum(axis=1) ** -0.5
    alone = np.log(points.work) - np.log1p(points.batches * np.exp(-critical)[:, None])
    # E_min is searched around the middle of what the points say one by one.
    least = np.median(alone, axis=1)[:, None, None] + sure[:, None] * off
    missed = (alone[:, None, None] - least[..., None]) / scale[:, None]
    log_weights = (
        (_student(missed) - np.log(scale)[:, None]).sum(axis=-1)
        + np.log(sure)[:, None]
        + _student(far)[:, None, None]
        - (unlike**2 / 2)[:, None]
    )
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    there = weights > 1e-9
    return Laws(
        critical=np.broadcast_to(critical[:, None, None], weights.shape)[there],
        least=least[there],
        weights=weights[there] / weights[there].sum(),
        scatter=float(weights.sum(axis=(0, 2)) @ scatter),
    )


def _student(off: Floats) -> Floats:
    """Return the logarithm of Student's density, but for a constant."""
    return np.asarray(-(FREEDOM + 1) / 2 * np.log1p(off**2 / FREEDOM))


def usual(points: Points, known: Learned) -> Critical:
    """Return what is believed of a critical batch of which nobody has told anything."""
    return Critical(math.log(points.largest) + known.usual, known.spread)


def stated(value: float, low: float, high: float) -> Critical:
    """Return what is believed of a critical batch that was given with its 90 % interval."""
    spread = math.log(high / low) / 2 / WITHIN
    return Critical(math.log(value), max(spread, LEAST_SPREAD))
