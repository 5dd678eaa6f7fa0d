"""Compare variants that took turns, step by step, on a machine that others use too.

A machine is faster at one time and slower at another: each step counts in units of the
steps around it. Ratios are of medians, with their 90 % interval by resampling.
"""

from typing import Any

import numpy as np

AROUND = 20
"""Rounds over which the machine is taken to be equally fast."""


class Rounds:
    """The seconds of variants, a column for each; a row is one step of each."""

    def __init__(self, seconds: dict[str, list[float]]) -> None:
        self._place = {name: place for place, name in enumerate(seconds)}
        self._units = np.array(list(seconds.values())).T
        for start in range(0, len(self._units), AROUND):
            block = self._units[start : start + AROUND]
            block /= np.median(block)

    def __len__(self) -> int:
        return len(self._units)

    def ratio(self, upper: str, lower: str, rows: Any = slice(None)) -> tuple[float, ...]:
        """Return the ratio of two variants' medians over some rows, and its interval."""
        columns = self._units[rows][:, [self._place[upper], self._place[lower]]]
        count = len(columns)
        draws = np.random.default_rng(0).integers(0, count, (500, count))
        above, below = np.median(columns[draws], axis=1).T
        middle = np.divide(*np.median(columns, axis=0))
        return float(middle), *map(float, np.quantile(above / below, [0.05, 0.95]))
