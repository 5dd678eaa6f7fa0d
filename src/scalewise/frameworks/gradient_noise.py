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
"""Two-sided 90 % quantile of Student's t for 9 degrees of freedom (``BLOCKS`` - 1)."""


class Noise:
    """The noise scale, from squared lengths of gradients of a small and of a large batch.

    >>> noise = Noise(small=10, big=20)
    >>> for _ in range(10):  # |G|² = 4 and tr Σ = 100, so 4 + 100/10 and 4 + 100/20.
    ...     noise.add(14.0, 9.0)
    >>> noise.scale()
    {'scale': 25.0, 'low': 25.0, 'high': 25.0, 'estimates': 10}
    """

    def __init__(self, small: int, big: int) -> None:
        self._small, self._big = small, big
        self._signal: list[float] = []
        self._variance: list[float] = []

    def add(self, small: float, big: float) -> None:
        """Add one step's |G_small|² and |G_big|²; values that overflowed are ignored."""
        if math.isfinite(small) and math.isfinite(big):
            batch, big_batch = self._small, self._big
            self._signal.append((big_batch * big - batch * small) / (big_batch - batch))
            self._variance.append((small - big) / (1 / batch - 1 / big_batch))

    def scale(self) -> dict[str, Any]:
        """Return mean tr Σ / mean |G|², with a 90 % interval (jackknife over blocks of steps).

        The mean of single ratios does not exist. None if estimates are few or not significant.
        """
        count = len(self._signal)
        signal, variance = _block_means(self._signal), _block_means(self._variance)
        if count < BLOCKS or not _is_positive(signal) or not _is_positive(variance):
            return {"scale": None, "low": None, "high": None, "estimates": count}
        value = fmean(self._variance) / fmean(self._signal)
        leave_one_out = [
            math.log(fmean(variance[:n] + variance[n + 1 :]) / fmean(signal[:n] + signal[n + 1 :]))
            for n in range(BLOCKS)
        ]
        half = STUDENT_T * stdev(leave_one_out) * (BLOCKS - 1) / math.sqrt(BLOCKS)
        low, high = value * math.exp(-half), value * math.exp(half)
        return {"scale": value, "low": low, "high": high, "estimates": count}


def _block_means(values: Sequence[float]) -> list[float]:
    """Return the means of consecutive values, about equally many in each block."""
    edges = [n * len(values) // BLOCKS for n in range(BLOCKS + 1)]
    return [fmean(values[a:b]) for a, b in pairwise(edges) if b > a]


def _is_positive(blocks: Sequence[float]) -> bool:
    """Return whether the mean of the blocks is significantly above 0."""
    if len(blocks) < BLOCKS:
        return False
    return fmean(blocks) > STUDENT_T * stdev(blocks) / math.sqrt(BLOCKS)
