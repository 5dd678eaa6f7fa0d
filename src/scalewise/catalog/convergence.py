"""Published amounts of training that a workload needs to reach its target, by global batch."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from scalewise.errors import SpecError, shown
from scalewise.validate import suggest_name

CONVERGENCE_FILE = Path(__file__).with_name("convergence.json")


@dataclass(frozen=True, slots=True)
class ConvergenceTable:
    """One workload: ``(global batch, work to target, runs)`` points, smallest batch first."""

    workload: str
    unit: str
    """Unit of work: ``samples`` or ``epochs``."""
    source: str
    date: str | None
    """When this version of the source appeared; None if unknown."""
    note: str
    points: tuple[tuple[int, float, int], ...]


@cache
def load_tables() -> dict[str, ConvergenceTable]:
    """Return every table, by workload."""
    tables = {}
    for row in json.loads(CONVERGENCE_FILE.read_text(encoding="utf-8")):
        points = tuple(tuple(point) for point in row["points"])
        tables[row["workload"]] = ConvergenceTable(**{**row, "points": points})
    return tables


def find_table(workload: str) -> ConvergenceTable:
    """Return the table of one workload. The error for an unknown workload lists all.

    >>> find_table("rnnt").points[0]
    (512, 41.375, 20)
    """
    tables = load_tables()
    if workload not in tables:
        raise SpecError(
            f"no convergence table of {shown(workload)}; there are: {', '.join(sorted(tables))}",
            hint=suggest_name(workload, tables) or "give one of them",
        )
    return tables[workload]
