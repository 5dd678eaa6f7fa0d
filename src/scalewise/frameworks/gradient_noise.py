"""How noisy gradients are: up to which batch more samples still make a better step.

The gradient noise scale tr Σ / |G|² of McCandlish et al. (arXiv:1812.06162), in samples: G is
the gradient over all data, Σ the covariance of single samples' gradients around it.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, stdev
from typing import Any

BLOCKS = 10
"""Parts of the run that are compared for an interval; so many estimates are needed at least."""
STUDENT = 1.833
"""Student's t that 90 % of cases stay within, for as many blocks."""


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
        self._spread: list[float] = []

    def add(self, small: float, big: float) -> None:
        """Take one step's |G_small|² and |G_big|²; an overflow says nothing."""
        if math.isfinite(small) and math.isfinite(big):
            b, whole = self._small, self._big
            self._signal.append((whole * big - b * small) / (whole - b))
            self._spread.append((small - big) / (1 / b - 1 / whole))

    def scale(self) -> dict[str, Any]:
        """Return the ratio of the means of tr Σ and |G|², with its 90 % interval.

        Never the mean of ratios: single ones have no mean. The interval is a jackknife's, over
        blocks of neighbours. Nothing where the estimates are few, or one of the means is not
        clearly above 0.
        """
        count = len(self._signal)
        signal, spread = _blocks(self._signal), _blocks(self._spread)
        if count < BLOCKS or not _clear(signal) or not _clear(spread):
            return {"scale": None, "low": None, "high": None, "estimates": count}
        value = fmean(self._spread) / fmean(self._signal)
        left = [
            math.log(fmean(_without(spread, n)) / fmean(_without(signal, n))) for n in range(BLOCKS)
        ]
        half = STUDENT * stdev(left) * (BLOCKS - 1) / math.sqrt(BLOCKS)
        low, high = value * math.exp(-half), value * math.exp(half)
        return {"scale": value, "low": low, "high": high, "estimates": count}


def _blocks(values: Sequence[float]) -> list[float]:
    """Return the means of neighbours, about as many in each block."""
    edges = [n * len(values) // BLOCKS for n in range(BLOCKS + 1)]
    return [fmean(values[a:b]) for a, b in pairwise(edges) if b > a]


def _clear(blocks: Sequence[float]) -> bool:
    """Say whether a mean is above 0 beyond its own spread."""
    if len(blocks) < BLOCKS:
        return False
    return fmean(blocks) > STUDENT * stdev(blocks) / math.sqrt(BLOCKS)


def _without(values: Sequence[float], place: int) -> list[float]:
    return [value for n, value in enumerate(values) if n != place]
