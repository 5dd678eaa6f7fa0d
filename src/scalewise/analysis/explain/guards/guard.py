"""How a guard is declared, the watched run it checks, and its finding."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from scalewise.analysis.measure.cached_value import cached_value
from scalewise.analysis.measure.window import Window, steady_window
from scalewise.analysis.number_format import format_count
from scalewise.record import batch_sharing
from scalewise.record.read import RunRecord
from scalewise.record.schema import ProgramFacts

GuardKind = Literal["correct", "tune"]
"""``correct``: training is wrong. ``tune``: training is slow; fix it before using more devices."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault that silently ruins training or scaling, found in a run."""

    name: str
    kind: GuardKind
    says: str
    """What was found, with its number."""
    hint: str
    """How to fix it."""
    devices: int | None = None
    """The smallest number of devices on which it was found."""
    question: bool = False
    """Whether the user may have intended it: it is then reported as a question."""

    @property
    def sentence(self) -> str:
        """What was found, and on how many devices, as a sentence."""
        where = f" (on {format_count(self.devices)})" if self.devices else ""
        return f"{self.says.rstrip('.')}{where}."


@dataclass(frozen=True)
class WatchedRun:
    """One run of a watched program, with the facts that its ranks recorded."""

    record: RunRecord
    facts: tuple[ProgramFacts, ...]
    """The facts of each rank."""
    smaller: tuple["WatchedRun", ...] = ()
    """The runs before it in the curve, fewest devices first."""

    @property
    def rank0(self) -> ProgramFacts:
        """The facts of rank 0."""
        return self.facts[0]

    @property
    def devices(self) -> int:
        """The requested number of devices."""
        return self.record.spec.topology.world

    @property
    def ranks(self) -> int:
        """How many processes trained."""
        return len(self.facts)

    @property
    def steps(self) -> tuple[int, ...]:
        """The number of steps of each rank."""
        return tuple(rank.outline.steps for rank in self.record.ranks)

    @property
    def global_batch(self) -> int:
        """Samples per step, summed over ranks: the median of each rank's steps."""
        return _global_batch(self.record)

    @property
    def comparable_rate(self) -> float | None:
        """The first learning rate; None if the global batch is unknown: ranks may share samples."""
        is_batch_known = self.record.spec.samples_per_step or not batch_sharing.unclear(self.facts)
        return self.rank0.first_rate if is_batch_known else None

    @property
    def window(self) -> Window:
        """The steady part of the run."""
        return steady_window(self.record)

    @property
    def input_share(self) -> float:
        """The share of the time of steady steps in which ranks wait for input."""
        return _input_share(self.record)


@cached_value("guarded batch")
def _global_batch(record: RunRecord) -> int:
    samples_by_rank = [rank.steps.samples for rank in record.ranks]
    return sum(int(np.median(samples)) for samples in samples_by_rank if samples.size)


@cached_value("input share")
def _input_share(record: RunRecord) -> float:
    first = steady_window(record).first
    waited = total = 0.0
    for rank in record.ranks:
        is_steady = rank.steps.index >= first
        total += float(rank.steps.seconds[is_steady].sum())
        if "input" in rank.steps.phases:
            waited += float(rank.steps.phases["input"][is_steady].sum())
    return waited / total if total else 0.0


def watched_runs(records: Sequence[RunRecord]) -> list[WatchedRun]:
    """Return the runs whose ranks all recorded facts, fewest devices first."""
    runs: list[WatchedRun] = []
    for record in sorted(records, key=lambda record: record.spec.topology.world):
        facts = tuple(rank.notes.facts for rank in record.ranks)
        if facts and ProgramFacts() not in facts:  # The default: no facts were recorded.
            runs.append(WatchedRun(record, facts, tuple(runs)))
    return runs


Check = Callable[[WatchedRun], tuple[str, str] | None]
"""Returns what was found and a hint, or None if the run does not have this fault."""


@dataclass(frozen=True, slots=True)
class Guard:
    """A check with the name and kind of its findings."""

    name: str
    kind: GuardKind
    check: Check
    question: bool = False
    """Whether what it finds may be intended."""

    def first_finding(self, runs: Sequence[WatchedRun]) -> Finding | None:
        """Return the finding in the first run that has this fault."""
        for run in runs:
            if result := self.check(run):
                says, hint = result
                return Finding(self.name, self.kind, says, hint, run.devices, self.question)
        return None


def guard(name: str, kind: GuardKind, *, question: bool = False) -> Callable[[Check], Guard]:
    """Return a decorator that replaces a check function with its guard."""
    return lambda check: Guard(name, kind, check, question)
