"""What was bought, what of it was useful, and what the rest went to, in device-hours.

    bought  devices × the time from launch to end, of every attempt
    useful  what the same work takes at the baseline's steady speed
    lost    the rest, by cause; useful and lost sum to bought

A cause is below 0 where devices did better than the baseline: a batch that
fits a cache makes computation cheaper.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from scalewise.analysis.cost.rates import Rate
from scalewise.analysis.explain.chain import (
    CAUSES,
    Chain,
    comparable_chains,
    mean_per_sample,
    seconds_by_cause,
)
from scalewise.analysis.explain.run_view import RunView, runs_by_point
from scalewise.analysis.measure import Point, ScalingCurve
from scalewise.analysis.measure.acceleration import same_device_kind
from scalewise.analysis.measure.window import is_watched_program, lifetime_parts, resumed_after_step
from scalewise.record.attempts import Attempt
from scalewise.record.read import RunRecord
from scalewise.record.spans import EARLIER, SPANS

SECONDS_PER_HOUR = 3600.0
ROUNDING_SHARE = 1e-9
"""A share that is nothing but the rounding of sums."""
LOSS_OF_SPAN = {span.name: span.lost_to for span in SPANS if span.lost_to}
"""What the parts of a job's life other than its training are lost to."""
LOSSES = (
    "start-up", "warm-up", *CAUSES, "validation", "checkpoints", "looking", "shutdown",
    "unexplained", "repeated", "failed", "idle", "not asked",
)  # fmt: skip
"""Every cause, in the order of a job's life; the last four are of whole attempts and devices."""


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """Device-hours of some runs: bought, useful, and lost by cause."""

    runs: int = 0
    bought: float = 0.0
    useful: float = 0.0
    """What the same work would have taken at the baseline's steady speed."""
    lost: Mapping[str, float] = field(default_factory=dict)
    """By cause, in the order of ``LOSSES``; with ``useful`` they sum to ``bought``."""
    energy: float | None = None
    """Joules of the finished runs whose counters tell it; nothing where none do."""
    cost: float | None = None
    """Of all that was bought, where a price is given."""
    currency: str | None = None
    """Of the cost, where it is known."""

    def share(self, hours: float) -> float:
        """Return device-hours as a share of what was bought."""
        return hours / self.bought if self.bought else 0.0

    def priced(self, rate: Rate | None) -> "Receipt":
        """Return the receipt with its cost."""
        if rate is None:
            return replace(self, cost=None, currency=None)
        return replace(self, cost=rate.per_device_hour * self.bought, currency=rate.currency)


def receipts(
    curve: ScalingCurve,
    records: Sequence[RunRecord],
    attempts: Mapping[Path, Sequence[Attempt]],
) -> list[Receipt]:
    """Return the receipt of every point of a curve; ``attempts`` are by the runs' folders."""
    groups = list(runs_by_point(curve, records))
    base = groups[0][1]
    return [point_receipt(curve, point, runs, base, attempts) for point, runs in groups]


def point_receipt(
    curve: ScalingCurve,
    point: Point,
    runs: Sequence[RunView],
    base: Sequence[RunView],
    attempts: Mapping[Path, Sequence[Attempt]],
) -> Receipt:
    """Return what the runs of one point have bought; ``base`` are the baseline's."""
    if not same_device_kind(
        point, curve.baseline
    ):  # Another device's pace says nothing of this one.
        return _receipt(point, runs, runs, point, attempts)
    return _receipt(point, runs, base, curve.baseline, attempts)


def _receipt(
    point: Point,
    runs: Sequence[RunView],
    base: Sequence[RunView],
    baseline: Point,
    attempts: Mapping[Path, Sequence[Attempt]],
) -> Receipt:
    rate = baseline.throughput_per_device
    assert rate is not None  # A curve from records has one.
    found = sum_receipts(_of_run(run, base, 1 / rate.value, attempts) for run in runs)
    return replace(found, energy=point.energy.value * len(runs) if point.energy else None)


def wasted_receipt(cause: str, attempts: Sequence[Attempt]) -> Receipt:
    """Return the receipt of a run whose attempts led to nothing."""
    hours = math.fsum(each.device_hours for each in attempts)
    return Receipt(runs=min(1, len(attempts)), bought=hours, lost={cause: hours} if hours else {})


def sum_receipts(found: Iterable[Receipt]) -> Receipt:
    """Return several receipts as one."""
    every = list(found)
    lost: dict[str, float] = defaultdict(float)
    for each in every:
        for cause, hours in each.lost.items():
            lost[cause] += hours
    joules = [each.energy for each in every if each.energy is not None]
    return Receipt(
        runs=sum(each.runs for each in every),
        bought=math.fsum(each.bought for each in every),
        useful=math.fsum(each.useful for each in every),
        lost={cause: lost[cause] for cause in LOSSES if cause in lost},
        energy=math.fsum(joules) if joules else None,
    )


def _of_run(
    run: RunView, base: Sequence[RunView], pace: float, attempts: Mapping[Path, Sequence[Attempt]]
) -> Receipt:
    """Return one finished run's receipt; ``pace`` is the baseline's: device-seconds per sample."""
    record, devices = run.record, run.record.spec.topology.world
    spent = lifetime_parts(record)
    before = spent.pop(EARLIER, 0.0)
    work, looked = _work(record)
    lost: dict[str, float] = defaultdict(float)
    for name, length in spent.items():
        if name in LOSS_OF_SPAN:
            lost[LOSS_OF_SPAN[name]] += devices * length
    lost["looking"] -= looked * pace
    steady = work * run.window.seconds / run.window.samples
    lost["warm-up"] += devices * (spent.get("train", 0.0) - steady)
    lost.update(_in_steps(run, base, work))
    again = [each for each in attempts.get(record.folder, ()) if not each.well]
    repeated = SECONDS_PER_HOUR * math.fsum(each.device_hours for each in again)
    # What earlier attempts left in a checkpoint was not in vain.
    taken_over = (resumed_after_step(record) or 0) * run.window.samples / run.window.steps
    kept = min(taken_over * pace, repeated)
    lost["repeated"] += repeated - kept
    bought = devices * (record.ended - record.started - before) + repeated
    useful = (work + looked) * pace + kept
    lost["unexplained"] = bought - useful - math.fsum(lost.values())
    return Receipt(
        runs=1,
        bought=bought / SECONDS_PER_HOUR,
        useful=useful / SECONDS_PER_HOUR,
        lost={
            cause: lost[cause] / SECONDS_PER_HOUR
            for cause in LOSSES
            if abs(lost[cause]) > ROUNDING_SHARE * bought
        },
    )


def _work(record: RunRecord) -> tuple[float, float]:
    """Return the samples of all ranks in this attempt's training, and those while it was traced."""
    if not is_watched_program(record):
        trained = (s for rank in record.ranks for s in rank.spans if s.name == "train")
        return float(sum(span.samples for span in trained)), 0.0
    seen = sum(rank.outline.seen for rank in record.ranks)
    looked = sum(int(rank.traced.samples.sum()) for rank in record.ranks if rank.traced is not None)
    return float(seen - looked), float(looked)


def _in_steps(run: RunView, base: Sequence[RunView], work: float) -> dict[str, float]:
    """Return the device-seconds that each cause adds to what the baseline's steps would take.

    Nothing where phases are not known: then all of it is unexplained.
    """
    origin = [each.chain for each in base if each.chain]
    if run.chain is None or len(origin) < len(base):
        return {}
    mine, *origin = comparable_chains([run.chain, *origin])
    per_sample = mean_per_sample(origin)
    growth = mine.samples / _mean_samples(origin)
    added, before = seconds_by_cause([mine], per_sample), seconds_by_cause(origin, per_sample)
    steps = work * run.window.steps / run.window.samples
    devices = run.record.spec.topology.world
    found = {}
    for cause in CAUSES:
        now, then = added[cause], before[cause]
        if now is not None and then is not None:
            found[cause] = devices * steps * (now - growth * then)
    return found


def _mean_samples(chains: Sequence[Chain]) -> float:
    return float(np.mean([each.samples for each in chains]))
