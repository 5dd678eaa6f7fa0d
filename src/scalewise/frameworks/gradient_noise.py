"""The gradient noise scale: the batch size up to which more samples clearly improve a step.

tr Σ / |G|² of McCandlish et al. (arXiv:1812.06162), in samples: G is the gradient over all data,
Σ the covariance of single samples' gradients around it.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, stdev
from typing import Any

BLOCKS = 10
"""Blocks of the jackknife interval; also the fewest estimates from which it is computed."""
STUDENT_T = 1.833
"""95 % quantile of Student's t for ``BLOCKS`` - 1 = 9 degrees of freedom: for a 90 % interval."""


class Noise:
    """The noise scale, from the squared gradient norms of batches of ``small`` and ``big`` samples.

    >>> noise = Noise(small=10, big=20)
    >>> for _ in range(10):  # |G|² = 4, tr Σ = 100: squared norms 4 + 100/10 and 4 + 100/20.
    ...     noise.add(14.0, 9.0)
    >>> noise.scale()
    {'scale': 25.0, 'low': 25.0, 'high': 25.0, 'estimates': 10}
    """

    def __init__(self, small: int, big: int) -> None:
        self._small_batch, self._big_batch = small, big
        self._signal: list[float] = []  # Estimates of |G|².
        self._variance: list[float] = []  # Estimates of tr Σ.

    def add(self, small_norm2: float, big_norm2: float) -> None:
        """Add one step's squared gradient norms; values that overflowed are ignored."""
        if math.isfinite(small_norm2) and math.isfinite(big_norm2):
            small, big = self._small_batch, self._big_batch
            self._signal.append((big * big_norm2 - small * small_norm2) / (big - small))
            self._variance.append((small_norm2 - big_norm2) / (1 / small - 1 / big))

    def scale(self) -> dict[str, Any]:
        """Return mean tr Σ / mean |G|² (a mean of ratios would not converge), with a 90 % interval.

        All values are None if the estimates are too few or too noisy.
        """
        count = len(self._signal)
        # Means over blocks of steps, for the jackknife.
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
