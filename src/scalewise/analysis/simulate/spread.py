"""How unlike ranks are, and what the slowest of many makes of it.

All wait for the slowest. The more ranks there are, the more often one of them
has a step as bad as the worst that was ever seen.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scalewise.errors import SpecError

AROUND = 20
"""Steps over which a machine is taken to be equally fast."""
LEAST = 0.01
"""The least time over the mean one: no rank takes none."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Times of single steps over their mean, as they were seen."""

    ratios: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        if not self.ratios or not all(0 < ratio < float("inf") for ratio in self.ratios):
            raise SpecError(
                "a spread is one or more ratios above 0 to the mean time",
                hint="for example Spread((0.98, 1.0, 1.05))",
            )

    def slowest(self, ranks: int) -> float:
        """Return the expected ratio of the slowest of so many ranks, each as likely as any seen.

        Exact for independent ranks; never beyond the slowest that was seen.

        >>> Spread((1.0, 2.0)).slowest(1), Spread((1.0, 2.0)).slowest(2)
        (1.5, 1.75)
        """
        ordered = np.sort(self.ratios)
        below = (np.arange(len(ordered) + 1) / len(ordered)) ** ranks
        return float(ordered @ np.diff(below))


def beside(seconds: NDArray[np.float64]) -> Spread:
    """Return the spread of ranks, a row each, in steps that they did together.

    Each is held against the mean of its step: what slows all of them at once is
    no spread. A few ranks stay close to their own mean, which is made good as in
    a standard deviation.
    """
    ranks = len(seconds)
    far = (seconds / seconds.mean(axis=0) - 1) * math.sqrt(ranks / (ranks - 1))
    return Spread(tuple(map(float, np.maximum(1 + far, LEAST).ravel())))


def apart(rows: Sequence[NDArray[np.float64]]) -> Spread:
    """Return the spread of ranks that had nothing to do with each other, or of one.

    A step is held against those around it, because a machine is faster at one
    time and slower at another; and a rank against the others.
    """
    every = float(np.mean([row.mean() for row in rows]))
    ratios = [ratio * (row.mean() / every) for row in rows for ratio in _around(row)]
    return Spread(tuple(map(float, ratios)))


def _around(row: NDArray[np.float64]) -> NDArray[np.float64]:
    blocks = np.array_split(row, max(1, len(row) // AROUND))
    return np.concatenate([block / block.mean() for block in blocks])
