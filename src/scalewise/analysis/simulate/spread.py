"""How much ranks vary, and how late the slowest of many is, for which all ranks wait."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scalewise.errors import SpecError

BLOCK_STEPS = 20
"""Steps over which the speed of a machine is assumed constant."""
MIN_RATIO = 0.01
"""Lower limit of a step's time over the mean: it must stay above 0."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Measured times of single steps over their mean."""

    ratios: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        if not self.ratios or not all(0 < ratio < float("inf") for ratio in self.ratios):
            raise SpecError(
                "a spread is one or more ratios above 0 to the mean time",
                hint="for example Spread((0.98, 1.0, 1.05))",
            )

    def slowest(self, ranks: int) -> float:
        """Return the expected ratio of the slowest of so many independent draws from ``ratios``.

        >>> Spread((1.0, 2.0)).slowest(1), Spread((1.0, 2.0)).slowest(2)
        (1.5, 1.75)
        """
        ordered = np.sort(self.ratios)
        below = (np.arange(len(ordered) + 1) / len(ordered)) ** ranks
        return float(ordered @ np.diff(below))


def synchronized_spread(seconds: NDArray[np.float64]) -> Spread:
    """Return the spread of ranks (rows) that did their steps (columns) together: ratios to each
    step's mean; as in a sample standard deviation, √(n / (n − 1)) corrects for the own mean.
    """
    ranks = len(seconds)
    deviations = (seconds / seconds.mean(axis=0) - 1) * math.sqrt(ranks / (ranks - 1))
    return Spread(tuple(map(float, np.maximum(1 + deviations, MIN_RATIO).ravel())))


def independent_spread(rows: Sequence[NDArray[np.float64]]) -> Spread:
    """Return the spread of ranks that did not wait for each other: ratios to neighbouring steps,
    because a machine's speed drifts, times the ratio of the rank's mean to that of all.
    """
    total_mean = float(np.mean([row.mean() for row in rows]))
    ratios: list[float] = []
    for row in rows:
        for block in np.array_split(row, max(1, len(row) // BLOCK_STEPS)):
            ratios += map(float, block / block.mean() * (row.mean() / total_mean))
    return Spread(tuple(ratios))
