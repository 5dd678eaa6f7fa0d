"""How well work to target is predicted at batches that were hidden.

    python benchmarks/target.py            the convergence tables of the catalog
    python benchmarks/target.py FILE       other tables, in the same JSON

The largest one or two batches of each workload are hidden and predicted from the rest,
with what the other workloads teach and nothing else. Then the same for the next two
batches after every beginning of a table, which is harder. Few numbers are learned, each
by a plain rule:

log_critical_ratio, spread
                where the critical batch of a whole table lies, against the largest batch of
                its beginnings, and twice as far as that varies: tables are made by those who
                went up to the limit, and others stop far below; each workload counts once
scatter         how far batches lie from the law of their table: the geometric mean
interval_factor what 9 of 10 errors after all beginnings stay within, in half-widths, where
                each workload is predicted by what the others show; never less than 1

Exits with 1 when a claim does not hold.
"""

import json
import math
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from scalewise.analysis.advise.quality.target_posterior import Learned
from scalewise.analysis.advise.quality.work_to_target import LEARNED, WorkToTarget, work_to_target
from scalewise.catalog.convergence import load_tables

MEDIAN, COVERAGE = 0.10, 0.85
START = Learned(log_critical_ratio=math.log(2), spread=1.5, scatter=0.04, interval_factor=1.0)
"""Vague enough that whole tables decide."""
DOUBT = 2.0
"""How much less than these tables others may know where their critical batch is."""
BEGINNING = 3
"""Points in the shortest beginning of a table that is learned from."""

Points = Sequence[Sequence[float]]
Tables = dict[str, Points]


@dataclass(frozen=True)
class Trial:
    """One hidden batch: logarithms of the truth and of what was predicted."""

    workload: str
    batch: float
    reach: float
    truth: float
    low: float
    middle: float
    high: float

    @property
    def error(self) -> float:
        """The prediction's, as a share of the truth."""
        return math.expm1(self.middle - self.truth)

    @property
    def missed(self) -> float:
        """How far off it is, in half-widths of its interval."""
        side = self.high if self.truth > self.middle else self.low
        return (self.truth - self.middle) / (side - self.middle)


def largest(points: Points) -> Iterator[tuple[Points, Points]]:
    """Hide the largest batch, then the largest two."""
    for hidden in (1, 2):
        if len(points) - hidden >= 2:
            yield points[:-hidden], points[-hidden:]


def beginnings(points: Points) -> Iterator[tuple[Points, Points]]:
    """Show every beginning, and hide the two batches after it."""
    for shown in range(BEGINNING, len(points)):
        yield points[:shown], points[shown : shown + 2]


PROTOCOLS = {"the largest one or two": largest, "the next two of every beginning": beginnings}


def trials(workload: str, points: Points, protocol: str, known: Learned) -> list[Trial]:
    """Return all hidden batches of one workload."""
    found = []
    for shown, hidden in PROTOCOLS[protocol](points):
        target = work_to_target(shown, learned=known)
        for batch, work, *_ in hidden:
            made = target.work(batch)
            logs = [math.log(each) for each in (work, made.low, made.value, made.high)]
            found.append(Trial(workload, batch, target.reach(batch), *logs))
    return found


def learn(known: Tables) -> Learned:
    """Return what these workloads teach."""
    missed = [
        trial.missed
        for name, points in known.items()
        for trial in trials(name, points, "the next two of every beginning", seen(known, name))
    ]
    return replace(seen(known), interval_factor=max(1.0, float(np.quantile(missed, 0.9))))


def seen(known: Tables, but: str = "") -> Learned:
    """Return what whole tables show, all but one."""
    wholes = {name: whole(tuple(points)) for name, points in known.items() if name != but}
    ratios = [
        [math.log(found.critical.value / shown[-1][0]) for shown, _ in beginnings(known[name])]
        for name, found in wholes.items()
    ]
    usual = statistics.fmean(map(statistics.fmean, ratios))
    spread = statistics.fmean(statistics.fmean((r - usual) ** 2 for r in each) for each in ratios)
    scatter = statistics.geometric_mean(found.laws.scatter for found in wholes.values())
    return Learned(usual, DOUBT * math.sqrt(spread), scatter, interval_factor=1.0)


@cache
def whole(points: tuple[Sequence[float], ...]) -> WorkToTarget:
    """Return the law of a whole table."""
    return work_to_target(points, learned=START)


def line(name: str, found: Sequence[Trial]) -> str:
    """Return one line of the table."""
    errors = [abs(each.error) for each in found]
    return (
        f"{name:<16} {len(found):>4} {100 * statistics.median(errors):>9.1f} "
        f"{100 * statistics.fmean(errors):>7.1f} {100 * max(errors):>7.1f} "
        f"{100 * covered(found):>9.0f} {100 * width(found):>8.0f}"
    )


def covered(found: Sequence[Trial]) -> float:
    """Return the share of hidden batches that lie in their interval."""
    return statistics.fmean(each.missed <= 1 for each in found)


def width(found: Sequence[Trial]) -> float:
    """Return half the median interval, as a share of the prediction."""
    return math.sinh(statistics.median(each.high - each.low for each in found) / 2)


def main() -> None:
    """Score every workload by what the others teach; tell which claims do not hold."""
    catalog: Tables = {name: each.points for name, each in load_tables().items()}
    scored = catalog
    if sys.argv[1:]:
        rows = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
        scored = {row["workload"]: row["points"] for row in rows}
    wrong = []
    learned = learn(catalog)
    print("learned from all:", learned)
    if not np.allclose(astuple(learned), astuple(LEARNED), rtol=0.01):
        wrong.append("the package has learned something else")
    others = {
        name: learn({other: points for other, points in catalog.items() if other != name})
        for name in scored
    }
    for protocol in PROTOCOLS:
        found = [
            trial
            for name, points in scored.items()
            for trial in trials(name, points, protocol, others[name])
        ]
        print(f"\nhidden: {protocol}")
        print(f"{'workload':<16} {'n':>4} {'median %':>9} {'mean %':>7} {'max %':>7} "
              f"{'covered %':>9} {'± %':>8}")  # fmt: skip
        for name in scored:
            if own := [each for each in found if each.workload == name]:
                print(line(name, own))
        print(line("all", found))
        if protocol == "the largest one or two":
            if statistics.median(abs(each.error) for each in found) > MEDIAN:
                wrong.append("median error")
            if covered(found) < COVERAGE:
                wrong.append("coverage")
    sys.exit("a claim does not hold: " + "; ".join(wrong) if wrong else 0)


if __name__ == "__main__":
    main()
