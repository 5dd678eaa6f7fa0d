"""Measured work to target, validated."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scalewise.errors import NotEnoughData, SpecError
from scalewise.validate import check_integer, check_positive

Floats = NDArray[np.float64]

MIN_WORK_RATIO = 0.8
"""Work at large batches may by chance be this share of that at small ones; less is refused."""


@dataclass(frozen=True, eq=False)
class WorkPoints:
    """Work to target at global batches, each batch once, smallest first."""

    batches: Floats
    work: Floats
    runs: Floats
    """How many runs each point is the mean of; unknown counts as one."""

    def __len__(self) -> int:
        return len(self.batches)

    @property
    def largest(self) -> float:
        return float(self.batches[-1])


def validate_points(points: Sequence[Sequence[float]]) -> WorkPoints:
    """Return points (global batch, work[, runs]) sorted by batch; refuse impossible ones.

    >>> validate_points([(512, 44.0), (256, 41.0)]).work
    array([41., 44.])
    """
    if not points:
        raise NotEnoughData("no work to target is known", hint="give (global batch, work) points")
    for point in points:
        if len(point) not in (2, 3):
            hint = "write (global batch, work) or (global batch, work, runs)"
            raise SpecError(f"not a point: {tuple(point)!r}", hint=hint)
        check_positive("batch", point[0], example=256)
        check_positive("work", point[1], example=40.0)
        if len(point) == 3:
            check_integer("runs", point[2], minimum=1)
    rows = [(*point, 1)[:3] for point in sorted(points, key=lambda point: point[0])]
    batches, work, runs = np.array(rows, float).T
    repeated = batches[1:][np.diff(batches) == 0]
    if len(repeated):
        raise SpecError(
            f"batch {repeated[0]:,.12g} appears twice",
            hint="give the mean of their work, and how many runs it is of",
        )
    _refuse_falling_work(work)
    return WorkPoints(batches, work, runs)


def _refuse_falling_work(work: Floats) -> None:
    """Refuse work that falls with the batch by more than chance. Medians ignore an outlier."""
    half = len(work) // 2
    if not half:
        return
    small, large = float(np.median(work[:half])), float(np.median(work[-half:]))
    if large < MIN_WORK_RATIO * small:
        raise SpecError(
            f"work falls from {small:,.6g} at small batches to {large:,.6g} at large ones, "
            "and a larger batch never needs less",
            hint="give work in samples or epochs, not in steps; tune the learning rate at each "
            "batch",
        )
