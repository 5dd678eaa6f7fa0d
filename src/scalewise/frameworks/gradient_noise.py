"""The gradient noise scale: the batch up to which more samples still improve a step.

tr Σ / |G|² of McCandlish et al. (arXiv:1812.06162), in samples: G is the gradient over all data,
Σ the covariance of single samples' gradients around it.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, stdev
from typing import Any

BLOCKS = 10
"""Blocks of the jackknife interval, and the smallest number of estimates."""
STUDENT_T = 1.833
"""95 % quantile of Student's t for 9 degrees of freedom (``BLOCKS`` - 1): 90 % if two-sided."""


class Noise:
    """The noise scale, from the squared gradient norms of batches of ``small`` and ``big`` samples.

    >>> noise = Noise(small=10, big=20)
    >>> for _ in range(10):  # |G|² = 4 and tr Σ = 100, so 4 + 100/10 and 4 + 100/20.
    ...     noise.add(14.0, 9.0)
    >>> noise.scale()
    {'scale': 25.0, 'low': 25.0, 'high': 25.0, 'estimates': 10}
    """

    def __init__(self, small: int, big: int) -> None:
        self._small_batch, self._big_batch = small, big
        self._signal: list[float] = []  # Estimates of |G|².
        self._variance: list[float] = []  # Estimates of tr Σ.

    def add(self, small: float, big: float) -> None:
        """Add one step's |G_small|² and |G_big|²; values that overflowed are ignored."""
        if math.isfinite(small) and math.isfinite(big):
            small_batch, big_batch = self._small_batch, self._big_batch
            self._signal.append((big_batch * big - small_batch * small) / (big_batch - small_batch))
            self._variance.append((small - big) / (1 / small_batch - 1 / big_batch))

    def scale(self) -> dict[str, Any]:
        """Return mean tr Σ / mean |G|², with a 90 % interval (jackknife over blocks of steps).

        A mean of ratios would not converge. Values are None if estimates are too few or too noisy.
        """
        count = len(self._signal)
        signal, variance = _block_means(self._signal), _block_means(self._variance)
        if count < BLOCKS or not _is_above_zero(signal) or not _is_above_zero(variance):
            return {"scale": None, "low": None, "high": None, "estimates": count}
        value = fmean(self._variance) / fmean(self._signal)
        leave_one_out = [
            math.log(fmean(variance[:n] + variance[n + 1 :]) / fmean(signal[:n] + signal[n + 1 :]))
            for n in range(BLOCKS)
        ]
        # The interval is symmetric in logarithms; this is t times the jackknife's standard error.
        half_width = STUDENT_T * stdev(leave_one_out) * (BLOCKS - 1) / math.sqrt(BLOCKS)
        low, high = value * math.exp(-half_width), value * math.exp(half_width)
        return {"scale": value, "low": low, "high": high, "estimates": count}


def _block_means(values: Sequence[float]) -> list[float]:
    """Return the mean of each block of consecutive values; blocks are about equally long."""
    edges = [n * len(values) // BLOCKS for n in range(BLOCKS + 1)]
    return [fmean(values[a:b]) for a, b in pairwise(edges) if b > a]


def _is_above_zero(blocks: Sequence[float]) -> bool:
    """Return whether the mean of the blocks is significantly above 0."""
    if len(blocks) < BLOCKS:
        return False
    return fmean(blocks) > STUDENT_T * stdev(blocks) / math.sqrt(BLOCKS)
