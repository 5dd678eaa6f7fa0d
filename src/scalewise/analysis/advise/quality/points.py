"""What was measured of work to target, checked: nonsense is refused in a sentence."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scalewise.errors import NotEnoughData, SpecError
from scalewise.validate import positive, whole

Floats = NDArray[np.float64]

FALLS = 0.8
"""By chance, work at large batches may be this share of that at small ones; not less."""


@dataclass(frozen=True, eq=False)
class Points:
    """Work to target at global batches, each once, smallest first."""

    batches: Floats
    work: Floats
    runs: Floats
    """How many runs each is the mean of; unknown counts as one."""

    def __len__(self) -> int:
        return len(self.batches)

    @property
    def largest(self) -> float:
        return float(self.batches[-1])


def checked(given: Sequence[Sequence[float]]) -> Points:
    """Return (global batch, work[, runs]) in order, or refuse them.

    >>> checked([(512, 44.0), (256, 41.0)]).work
    array([41., 44.])
    """
    if not given:
        raise NotEnoughData("no work to target is known", hint="give (global batch, work) points")
    for point in given:
        if len(point) not in (2, 3):
            hint = "write (global batch, work) or (global batch, work, runs)"
            raise SpecError(f"not a point: {tuple(point)!r}", hint=hint)
        positive("batch", point[0], example=256)
        positive("work", point[1], example=40.0)
        if len(point) == 3:
            whole("runs", point[2], least=1)
    rows = [(*point, 1)[:3] for point in sorted(given, key=lambda point: point[0])]
    batches, work, runs = np.array(rows, float).T
    _refuse_twice(batches)
    _refuse_falling(work)
    return Points(batches, work, runs)


def _refuse_twice(batches: Floats) -> None:
    again = batches[1:][np.diff(batches) == 0]
    if len(again):
        raise SpecError(
            f"batch {again[0]:,.12g} appears twice",
            hint="give the mean of their work, and how many runs it is of",
        )


def _refuse_falling(work: Floats) -> None:
    """Refuse work that falls with the batch beyond chance; one odd point is none of it."""
    half = len(work) // 2
    if not half:
        return
    small, large = float(np.median(work[:half])), float(np.median(work[-half:]))
    if large < FALLS * small:
        raise SpecError(
            f"work falls from {small:,.6g} at small batches to {large:,.6g} at large ones, "
            "and a larger batch never needs less",
            hint="give work in samples or epochs, not in steps; tune the rate at each batch",
        )
