"""How much work it takes to reach a target at each global batch, as others have published it."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from scalewise.errors import SpecError
from scalewise.validate import nearest

FILE = Path(__file__).with_name("convergence.json")


@dataclass(frozen=True, slots=True)
class ConvergenceTable:
    """One workload: ``(global batch, work to target, runs)`` points, smallest batch first."""

    workload: str
    unit: str
    """What work is counted in: ``samples`` or ``epochs``."""
    source: str
    date: str | None
    """When the results of that version appeared, as far as that could be checked."""
    note: str
    points: tuple[tuple[int, float, int], ...]


@cache
def tables() -> dict[str, ConvergenceTable]:
    """Return every table, by workload."""
    rows = json.loads(FILE.read_text(encoding="utf-8"))
    found = [
        ConvergenceTable(**{**row, "points": tuple(tuple(point) for point in row["points"])})
        for row in rows
    ]
    return {each.workload: each for each in found}


def table(workload: str) -> ConvergenceTable:
    """Return the table of one workload; an unknown name is answered with the known ones.

    >>> table("rnnt").points[0]
    (512, 41.375, 20)
    """
    known = tables()
    if workload not in known:
        raise SpecError(
            f"no convergence table of {workload!r}; there are: {', '.join(sorted(known))}",
            hint=nearest(workload, known),
        )
    return known[workload]
