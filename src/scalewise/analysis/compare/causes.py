"""Which cause moved: the seconds that each cause takes on both sides, and whether they changed by
more than noise. Causes in a step are those of ``explain.chain``; others are parts of the job.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from scalewise.analysis.compare.samples import (
    MIN_NOISE,
    Pair,
    Sample,
    change_of,
    holm,
    noise_of_pairs,
)
from scalewise.analysis.compare.side import RunFigures
from scalewise.analysis.explain.chain import CAUSES, Chain, comparable_chains
from scalewise.analysis.measure import Estimate

MIN_CAUSE_CHANGE = 0.005
"""A cause whose seconds changed by a smaller share of the whole is not named."""


@dataclass(frozen=True, slots=True)
class CauseChange:
    """The seconds of one cause on both sides, on one number of devices."""

    cause: str
    """A cause of ``chain.CAUSES`` (per step), or of the complete job: ``start-up`` …"""
    before: float
    after: float
    change: Estimate
    """After − before, in seconds, with its 90 % interval where repeats show the noise."""
    per_step: bool
    p: float = 1.0
    """The chance of a change at least as large, if there is none; 1 if the noise is unknown."""

    @property
    def is_certain(self) -> bool:
        """Whether the change is more than noise."""
        low, high = self.change.low, self.change.high
        return low is not None and high is not None and (low > 0 or high < 0)


RunsOfPoint = tuple[Sequence[RunFigures], Sequence[RunFigures]]
"""The runs of one number of devices, on both sides."""


def step_changes(points: Sequence[RunsOfPoint], index: int) -> tuple[CauseChange, ...]:
    """Return how the seconds of a step changed at one of several points, by cause. If the batch per
    device differs, a step of the second side is scaled to the samples of the first.
    """
    chains = [run.chain for sides in points for runs in sides for run in runs]
    known = [chain for chain in chains if chain]
    if len(known) < len(chains) or not known:
        return ()
    comparable = iter(comparable_chains(known))
    by_point = [tuple([next(comparable) for _ in runs] for runs in sides) for sides in points]
    hidden = set() if known[0].transfer_known else {"transfer"}
    tables = []
    for before, after in by_point:
        samples = before[0].samples
        tables.append(
            tuple([_seconds(chain, samples) for chain in side] for side in (before, after))
        )
    causes = [cause for cause in CAUSES if cause not in hidden]
    return _changes(causes, tables, index, per_step=True)


def job_changes(points: Sequence[RunsOfPoint], index: int) -> tuple[CauseChange, ...]:
    """Return how the seconds of the complete job changed at one of several points, by cause."""
    tables = [tuple([run.parts for run in runs] for runs in sides) for sides in points]
    causes = dict.fromkeys(cause for side in tables[index] for parts in side for cause in parts)
    return _changes([*causes], tables, index, per_step=False)


def _seconds(chain: Chain, samples: float) -> dict[str, float]:
    """Return the seconds of a step of so many samples by cause; they sum to the measured step."""
    lines = (0.0, *chain.lines(0.0)[1:])
    scale = samples / chain.samples
    return {cause: scale * (b - a) for cause, (a, b) in zip(CAUSES, pairwise(lines))}


def _changes(
    causes: Sequence[str],
    tables: Sequence[tuple[Sequence[Mapping[str, float]], ...]],
    index: int,
    *,
    per_step: bool,
) -> tuple[CauseChange, ...]:
    """Return the changes of all causes at one point, the largest first. Noise is pooled over points
    as a share of the seconds of all causes.
    """
    totals = [sum(sum(run.values()) for run in before) / len(before) or 1.0 for before, _ in tables]
    changes = []
    for cause in causes:
        pairs: list[Pair] = []
        for (before, after), total in zip(tables, totals, strict=True):
            shares = [[run.get(cause, 0.0) / total for run in side] for side in (before, after)]
            pairs.append((Sample.of(shares[0]), Sample.of(shares[1])))
        noises = noise_of_pairs(pairs, [MIN_NOISE**2] * len(pairs))
        pair, total = pairs[index], totals[index]
        before_seconds, after_seconds = (sample.mean * total for sample in pair)
        estimate, p = Estimate(after_seconds - before_seconds), 1.0
        if noises:
            change = change_of(pair, noises[index])
            estimate, p = change.estimate() * total, change.p
        changes.append(CauseChange(cause, before_seconds, after_seconds, estimate, per_step, p))
    return tuple(sorted(changes, key=lambda row: -abs(row.change.value)))


def moved_cause(changes: Sequence[CauseChange], *, grew: bool) -> CauseChange | None:
    """Return the cause whose seconds grew (or shrank) most, by more than noise; None if none did.
    Without repeats the noise is unknown, and no cause is named.
    """
    candidates = [
        row for row in _noticeable(changes) if row.is_certain and (row.change.value > 0) == grew
    ]
    return max(candidates, key=lambda row: abs(row.change.value), default=None)


def hidden_cause(changes: Sequence[CauseChange], level: float) -> CauseChange | None:
    """Return the cause that changed most although no difference in speed is shown: by more than
    noise in a test of all causes together at ``level``.
    """
    shown = holm([row.p for row in changes], level)
    certain = [row for row, is_shown in zip(changes, shown, strict=True) if is_shown]
    noticeable = [row for row in _noticeable(changes) if row in certain]
    return max(noticeable, key=lambda row: abs(row.change.value), default=None)


def _noticeable(changes: Sequence[CauseChange]) -> list[CauseChange]:
    total = sum(row.before for row in changes)
    return [row for row in changes if abs(row.change.value) > MIN_CAUSE_CHANGE * total]
