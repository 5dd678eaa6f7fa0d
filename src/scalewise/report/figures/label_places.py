"""Places for the labels of points, where they cover neither lines nor each other."""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

SAMPLES = 40
"""Points along a segment that are tested for being covered."""
DIRECTIONS = ((1, -1), (-1, 1), (1, 1), (-1, -1), (1, 0), (0, -1), (0, 1), (-1, 0))
"""From a point to its label, right and up; the first ones are preferred."""
OVERLAP_PENALTY = 200.0
OUTSIDE_PENALTY = 20.0
"""For each pixel beyond the frame."""
DISTANCE_PENALTY = 1.0
"""For each pixel between a label and its point."""
MIDDLE_PENALTY = 0.1
"""For each pixel between the middle of a label and its point."""


class Box(NamedTuple):
    """A rectangle in pixels; ``top`` is above ``bottom``."""

    left: float
    bottom: float
    right: float
    top: float


class Place(NamedTuple):
    """Where a label is put: its direction and distance from its point, and the box it fills."""

    direction: tuple[int, int]
    distance: float
    box: Box


def best_place(
    point: tuple[float, float],
    size: tuple[float, float],
    distances: Iterable[float],
    *,
    obstacles: np.ndarray,
    boxes: Sequence[Box],
    frame: Box,
) -> Place:
    """Return the place beside a point, in pixels, where a label of this width and height covers the
    fewest ``obstacles`` (points) and ``boxes`` (other labels), and stays in the frame.
    """
    places = [
        Place(direction, distance, _box(point, size, direction, distance))
        for distance in distances
        for direction in DIRECTIONS
    ]
    return min(places, key=lambda place: _penalty(point, place, obstacles, boxes, frame))


def points_along(pixels: np.ndarray) -> np.ndarray:
    """Return points along a line through these points."""
    shares = np.linspace(0, 1, SAMPLES)[:, None]
    segments = [first + shares * (second - first) for first, second in pairwise(pixels)]
    return np.concatenate([pixels, *segments])


def _box(
    point: tuple[float, float],
    size: tuple[float, float],
    direction: tuple[int, int],
    distance: float,
) -> Box:
    # The side that faces the point is ``distance`` away; in direction 0 the label is centered.
    left, bottom = (
        start + sign * distance - length * (1 - sign) / 2
        for start, length, sign in zip(point, size, direction)
    )
    return Box(left, bottom, left + size[0], bottom + size[1])


def _penalty(
    point: tuple[float, float],
    place: Place,
    obstacles: np.ndarray,
    boxes: Sequence[Box],
    frame: Box,
) -> float:
    box = place.box
    inside = (
        (obstacles[:, 0] > box.left) & (obstacles[:, 0] < box.right)
        & (obstacles[:, 1] > box.bottom) & (obstacles[:, 1] < box.top)
    )  # fmt: skip
    overlaps = sum(
        box.left < other.right and other.left < box.right
        and box.bottom < other.top and other.bottom < box.top
        for other in boxes
    )  # fmt: skip
    outside = max(
        frame.left - box.left, box.right - frame.right,
        frame.bottom - box.bottom, box.top - frame.top, 0.0,
    )  # fmt: skip
    middle = ((box.left + box.right) / 2, (box.bottom + box.top) / 2)
    return (
        int(inside.sum())
        + OVERLAP_PENALTY * overlaps
        + OUTSIDE_PENALTY * outside
        + DISTANCE_PENALTY * place.distance
        + MIDDLE_PENALTY * math.dist(middle, point)
    )
