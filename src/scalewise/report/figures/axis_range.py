"""The ends and ticks of axes, for both renderers."""

import math
from collections.abc import Sequence

from scalewise.report.figures import Axis, Figure

MIN_LOG_RATIO = 2.0
"""The ends of a logarithmic axis are at least this ratio apart: smaller differences stay small, and
there are round numbers between the ends.
"""
MAX_TICKS = 12
"""So many decades are named on a logarithmic axis."""
LABEL_MARGINS = (0.14, 0.38)
"""Where points have labels: the room for them on each side of the data, as shares of its width and
height."""


def label_margins(figure: Figure) -> tuple[float, float] | None:
    """Return the room that the labels of points need; None if no point has a label."""
    return LABEL_MARGINS if any(line.labels for line in figure.lines) else None


def axis_range(axis: Axis, values: Sequence[float], margin: float) -> tuple[float, float]:
    """Return the ends of an axis: logarithms to base 10 if it is logarithmic, otherwise from 0.

    >>> low, high = axis_range(Axis("hours", log=True), [10.0, 10.0], 0.0)
    >>> round(10**high / 10**low, 6)
    2.0
    """
    if not axis.log:
        return 0.0, (1 + margin) * max(values)
    low, high = math.log10(min(values)), math.log10(max(values))
    missing = 0.0 if axis.counts else max(0.0, math.log10(MIN_LOG_RATIO) - (high - low))
    low, high = low - missing / 2, high + missing / 2
    room = margin * (high - low)
    return low - room, high + room


def is_narrow(values: Sequence[float]) -> bool:
    """Return whether values are too close together to fill a logarithmic axis."""
    return max(values) < MIN_LOG_RATIO * min(values)


def log_ticks(low: float, high: float) -> list[float]:
    """Return round numbers that cover the range: the finer, the narrower it is.

    >>> log_ticks(3.0, 30.0)
    [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0]
    """
    first, last = math.log10(low), math.log10(high)
    steps: Sequence[float] = (1,)
    if last - first < 0.8:
        steps = (1, 1.5, 2, 3, 4, 5, 6, 8)
    elif last - first < 4:
        steps = (1, 2, 5)
    every = max(1, int(last - first) // MAX_TICKS)
    powers = range(math.floor(first), math.ceil(last) + 1, every)
    return [float(f"{step * 10.0**power:.6g}") for power in powers for step in steps]
