"""Stretches of time, put together and cut: lists of starts and ends, in order, apart."""

from collections.abc import Iterable

Interval = tuple[float, float]
MAX_OPERATOR_GAP_SECONDS = 1e-4
"""Seconds between two operators that are the engine's own work, and no waiting."""


def union(parts: Iterable[Interval], gap: float = 0.0) -> list[Interval]:
    """Return intervals in order, those that touch put together.

    >>> union([(3.0, 4.0), (0.0, 1.0), (0.5, 2.0)])
    [(0.0, 2.0), (3.0, 4.0)]
    """
    found: list[Interval] = []
    for start, end in sorted(parts):
        if found and start <= found[-1][1] + gap:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def union_over_gaps(parts: Iterable[Interval]) -> list[Interval]:
    """Return intervals put together also over short gaps."""
    return union(parts, MAX_OPERATOR_GAP_SECONDS)


def subtract(parts: Iterable[Interval], others: Iterable[Interval]) -> list[Interval]:
    """Return what of the parts lies in none of the others.

    >>> subtract([(0.0, 4.0)], [(1.0, 2.0), (3.0, 9.0)])
    [(0.0, 1.0), (2.0, 3.0)]
    """
    taken = union(others)
    found: list[Interval] = []
    place = 0
    for start, end in union(parts):
        while place < len(taken) and taken[place][1] <= start:
            place += 1
        at = place
        while at < len(taken) and taken[at][0] < end:
            if taken[at][0] > start:
                found.append((start, taken[at][0]))
            start = max(start, taken[at][1])
            at += 1
        if start < end:
            found.append((start, end))
    return found


def intersect(parts: Iterable[Interval], others: Iterable[Interval]) -> list[Interval]:
    """Return what of the parts lies in the others too.

    >>> intersect([(0.0, 2.0), (3.0, 5.0)], [(1.0, 4.0)])
    [(1.0, 2.0), (3.0, 4.0)]
    """
    mine = union(parts)
    return subtract(mine, subtract(mine, others))


def total_length(parts: Iterable[Interval]) -> float:
    """Return how long intervals are together."""
    return sum(end - start for start, end in parts)
