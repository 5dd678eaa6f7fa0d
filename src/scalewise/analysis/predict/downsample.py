"""Fewer points of a series with many: neighbours become one point of the line through them. A
forecast from thousands of points would take minutes and say no more.
"""

from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from scalewise.analysis.predict.series import Floats, Series

MAX_POINTS = 64
MIN_LINE_POINTS = 4
"""Groups with fewer points keep one of them: a line through them would have more noise."""


def downsample(points: Series) -> Series:
    """Return ``MAX_POINTS`` points with the first and the last count, as evenly spread in the
    logarithm of the device count as the counts allow; the series itself if it has no more points.
    """
    if len(points.devices) <= MAX_POINTS:
        return points
    log_devices, log_cost = np.log(points.devices), np.log(points.cost)
    position = (log_devices - log_devices[0]) / (log_devices[-1] - log_devices[0])
    group = np.minimum((position * MAX_POINTS).astype(int), MAX_POINTS - 1)
    bounds = np.append(np.flatnonzero(np.diff(group, prepend=-1)), len(group))
    while len(bounds) <= MAX_POINTS:  # Some groups are empty: halve the largest instead.
        largest = np.argmax(np.diff(bounds))
        bounds = np.insert(bounds, largest + 1, bounds[largest : largest + 2].sum() // 2)
    kept, costs = [], []
    for start, end in pairwise(bounds):
        middle = start if start == 0 else end - 1 if end == len(group) else (start + end - 1) // 2
        kept.append(middle)
        costs.append(_on_line(log_devices[start:end], log_cost[start:end], int(middle - start)))
    return replace(points, devices=points.devices[kept], cost=np.exp(costs))


def spread_indices(counts: Floats, limit: int) -> NDArray[np.intp]:
    """Return at most ``limit`` indices of increasing counts, evenly spread in their logarithm, with
    both ends.
    """
    spread = np.geomspace(counts[0], counts[-1], limit)
    return np.unique(np.searchsorted(counts, spread).clip(max=len(counts) - 1))


def _on_line(x: Floats, y: Floats, index: int) -> float:
    """Return y of the least-squares line through the points, at one of them."""
    if len(x) < MIN_LINE_POINTS:
        return float(y[index])
    _slope, level = np.polyfit(x - x[index], y, 1)
    return float(level)
