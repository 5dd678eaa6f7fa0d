"""Set operations on time intervals. The results are sorted lists of disjoint (start, end) pairs."""

from collections.abc import Iterable

Interval = tuple[float, float]


def union(parts: Iterable[Interval], gap: float = 0.0) -> list[Interval]:
    """Return the intervals, merged where they overlap or are at most ``gap`` apart.

    >>> union([(3.0, 4.0), (0.0, 1.0), (0.5, 2.0)])
    [(0.0, 2.0), (3.0, 4.0)]
    """
    merged: list[Interval] = []
    for start, end in sorted(parts):
        if merged and start <= merged[-1][1] + gap:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return merged


def subtract(parts: Iterable[Interval], removed: Iterable[Interval]) -> list[Interval]:
    """Return the time of the parts that is in none of the removed intervals.

    >>> subtract([(0.0, 4.0)], [(1.0, 2.0), (3.0, 9.0)])
    [(0.0, 1.0), (2.0, 3.0)]
    """
    holes = union(removed)
    remaining: list[Interval] = []
    first_hole = 0  # The index of the first hole that may still cut a part.
    for start, end in union(parts):
        while first_hole < len(holes) and holes[first_hole][1] <= start:
            first_hole += 1
        index = first_hole
        while index < len(holes) and holes[index][0] < end:
            if holes[index][0] > start:
                remaining.append((start, holes[index][0]))
            start = max(start, holes[index][1])
            index += 1
        if start < end:
            remaining.append((start, end))
    return remaining


def intersect(parts: Iterable[Interval], limits: Iterable[Interval]) -> list[Interval]:
    """Return the time that is both in the parts and in the limits.

    >>> intersect([(0.0, 2.0), (3.0, 5.0)], [(1.0, 4.0)])
    [(1.0, 2.0), (3.0, 4.0)]
    """
    merged = union(parts)
    return subtract(merged, subtract(merged, limits))


def total_length(parts: Iterable[Interval]) -> float:
    """Return the summed length of disjoint intervals."""
    return sum(end - start for start, end in parts)
