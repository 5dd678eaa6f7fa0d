"""How much the step times of ranks vary, and how long the slowest of many ranks takes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scalewise.errors import SpecError

BLOCK_STEPS = 20
"""Steps over which the speed of a machine is assumed constant."""
MIN_RATIO = 0.01
"""Smallest ratio of a step's time to the mean; a correction could make it negative."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The variation of step times: ``ratios`` of measured step times to their mean."""

    ratios: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        if not self.ratios or not all(0 < ratio < float("inf") for ratio in self.ratios):
            raise SpecError(
                "a spread is one or more ratios above 0 to the mean time",
                hint="for example Spread((0.98, 1.0, 1.05))",
            )

    def slowest(self, ranks: int) -> float:
        """Return the expected maximum of ``ranks`` independent draws from ``ratios``.

        >>> Spread((1.0, 2.0)).slowest(1), Spread((1.0, 2.0)).slowest(2)
        (1.5, 1.75)
        """
        ordered = np.sort(self.ratios)
        # The probability that all draws are among the k smallest ratios, for k = 0 … their number.
        cumulative = (np.arange(len(ordered) + 1) / len(ordered)) ** ranks
        return float(ordered @ np.diff(cumulative))


def synchronized_spread(seconds: NDArray[np.float64]) -> Spread:
    """Return the spread of n ranks (rows) whose steps (columns) are synchronised. A ratio is
    seconds / mean of that step over ranks, its deviation from 1 corrected by √(n / (n − 1)).
    """
    ranks = len(seconds)
    deviations = (seconds / seconds.mean(axis=0) - 1) * math.sqrt(ranks / (ranks - 1))
    return Spread(tuple(map(float, np.maximum(1 + deviations, MIN_RATIO).ravel())))


def independent_spread(rows: Sequence[NDArray[np.float64]]) -> Spread:
    """Return the spread of ranks that did not wait for each other. A ratio is seconds / mean of
    the block of steps (a machine's speed drifts), times mean of the rank / mean of all ranks.
    """
    total_mean = float(np.mean([row.mean() for row in rows]))
    ratios: list[float] = []
    for row in rows:
        for block in np.array_split(row, max(1, len(row) // BLOCK_STEPS)):
            ratios += map(float, block / block.mean() * (row.mean() / total_mean))
    return Spread(tuple(ratios))
