"""Receipts: device-hours that were bought, that were useful, and that were lost by cause.

bought  devices × the time from launch to end, summed over all attempts
useful  what the same work takes at the baseline's steady speed
lost    bought − useful, by cause; a cause is negative if it took less than on the baseline
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
    comparable_chains,
    mean_compute_per_sample,
    seconds_by_cause,
)
from scalewise.analysis.explain.run_view import RunView, runs_by_point
from scalewise.analysis.measure import Point, ScalingCurve
from scalewise.analysis.measure.acceleration import same_device_kind
from scalewise.analysis.measure.cached_value import cached_value
from scalewise.analysis.measure.window import lifetime_parts
from scalewise.record.attempts import Attempt
from scalewise.record.read import RunRecord
from scalewise.record.schema import EARLIER, SPANS, UNEXPLAINED

AttemptsByFolder = Mapping[Path, Sequence[Attempt]]
SECONDS_PER_HOUR = 3600.0
ROUNDING_SHARE = 1e-9
"""Losses below this share of the bought hours are rounding errors of sums."""
LOSS_OF_SPAN = {span.name: span.lost_to for span in SPANS if span.lost_to}
"""The cause under which the time of each span (part of a lifetime) is lost; training has none."""
LOSSES = tuple(dict.fromkeys([
    "start-up", "warm-up", *CAUSES,
    *(loss for name, loss in LOSS_OF_SPAN.items() if name != EARLIER),
    UNEXPLAINED, LOSS_OF_SPAN[EARLIER], "failed", "idle", "not asked",
]))  # fmt: skip
"""Every cause of loss, in the order of a lifetime. The last four are steps repeated after a
failure, failed runs, devices idle beside a smaller run, and runs no longer in the study.
"""


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """Device-hours of some runs: bought, useful, and lost by cause."""

    runs: int = 0
    bought: float = 0.0
    useful: float = 0.0
    """What the same work would have taken at the baseline's steady speed."""
    lost: Mapping[str, float] = field(default_factory=dict)
    """Lost hours by cause, in the order of ``LOSSES``; with ``useful`` they sum to ``bought``."""
    energy: float | None = None
    """Joules of the finished runs whose energy is known; None if it is known of no run."""
    cost: float | None = None
    """The price of all bought device-hours; None without a price."""
    currency: str | None = None

    def share(self, hours: float) -> float:
        """Return device-hours as a share of what was bought."""
        return hours / self.bought if self.bought else 0.0

    def priced(self, rate: Rate | None) -> "Receipt":
        """Return the receipt with its cost at this rate; without a rate, the cost is None."""
        cost = rate.per_device_hour * self.bought if rate else None
        return replace(self, cost=cost, currency=rate.currency if rate else None)


def receipts(
    curve: ScalingCurve, records: Sequence[RunRecord], attempts: AttemptsByFolder
) -> list[Receipt]:
    """Return the receipt of every point of a curve."""
    groups = list(runs_by_point(curve, records))
    base_runs = groups[0][1]
    return [point_receipt(curve, point, runs, base_runs, attempts) for point, runs in groups]


def point_receipt(
    curve: ScalingCurve,
    point: Point,
    runs: Sequence[RunView],
    base_runs: Sequence[RunView],
    attempts: AttemptsByFolder,
) -> Receipt:
    """Return the receipt of one point's runs; ``base_runs`` are the runs of the baseline."""
    baseline = curve.baseline
    if not same_device_kind(point, baseline):  # Another kind of device is compared with itself.
        base_runs, baseline = runs, point
    per_device = baseline.throughput_per_device
    assert per_device is not None  # A curve from records has a throughput.
    pace = 1 / per_device.value
    summed = sum_receipts(_run_receipt(run, base_runs, pace, attempts) for run in runs)
    return replace(summed, energy=point.energy.value * len(runs) if point.energy else None)


def wasted_receipt(cause: str, attempts: Sequence[Attempt]) -> Receipt:
    """Return the receipt of a run without result: all its device-hours are lost to ``cause``."""
    hours = math.fsum(attempt.device_hours for attempt in attempts)
    return Receipt(runs=int(bool(attempts)), bought=hours, lost={cause: hours} if hours else {})


def sum_receipts(parts: Iterable[Receipt]) -> Receipt:
    """Return the sum of receipts."""
    parts = list(parts)
    lost: dict[str, float] = defaultdict(float)
    for part in parts:
        for cause, hours in part.lost.items():
            lost[cause] += hours
    joules = [part.energy for part in parts if part.energy is not None]
    return Receipt(
        runs=sum(part.runs for part in parts),
        bought=math.fsum(part.bought for part in parts),
        useful=math.fsum(part.useful for part in parts),
        lost={cause: lost[cause] for cause in LOSSES if cause in lost},
        energy=math.fsum(joules) if joules else None,
    )


def _run_receipt(
    run: RunView, base_runs: Sequence[RunView], pace: float, attempts: AttemptsByFolder
) -> Receipt:
    """Return one finished run's receipt; ``pace`` is the baseline's device-seconds per sample."""
    record, devices, window = run.record, run.devices, run.window
    parts = dict(lifetime_parts(record))
    earlier_seconds = parts.pop(EARLIER, 0.0)
    samples, traced_samples = _count_samples(record)
    lost: dict[str, float] = defaultdict(float)  # In device-seconds.
    for name, seconds in parts.items():
        if name in LOSS_OF_SPAN:
            lost[LOSS_OF_SPAN[name]] += devices * seconds
    # The time of profiled steps is now in "looking" (measurement), but their samples were useful.
    lost["looking"] -= traced_samples * pace
    steady_seconds = samples * window.seconds / window.samples  # Training without warm-up.
    lost["warm-up"] += devices * (parts.get("train", 0.0) - steady_seconds)
    lost.update(_lost_in_steps(run, base_runs, samples))
    failed = [attempt for attempt in attempts.get(record.folder, ()) if not attempt.succeeded]
    failed_seconds = SECONDS_PER_HOUR * math.fsum(attempt.device_hours for attempt in failed)
    # The steps that earlier attempts saved in a checkpoint were useful.
    resumed_samples = (record.ranks[0].notes.resumed or 0) * window.samples / window.steps
    useful_failed_seconds = min(resumed_samples * pace, failed_seconds)
    lost["repeated"] += failed_seconds - useful_failed_seconds
    # ``failed_seconds`` already contains the earlier attempts of this job.
    bought = devices * (record.ended - record.started - earlier_seconds) + failed_seconds
    useful = (samples + traced_samples) * pace + useful_failed_seconds
    lost[UNEXPLAINED] = bought - useful - math.fsum(lost.values())
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


@cached_value("sample counts")
def _count_samples(record: RunRecord) -> tuple[float, float]:
    """Return the samples of all ranks in this attempt: in untraced steps, and in traced steps."""
    if not record.ranks[0].notes.watched:  # Only programs of users are traced.
        trained = (s for rank in record.ranks for s in rank.spans if s.name == "train")
        return float(sum(span.samples for span in trained)), 0.0
    total = sum(rank.outline.seen for rank in record.ranks)
    traced = sum(int(rank.traced.samples.sum()) for rank in record.ranks if rank.traced is not None)
    return float(total - traced), float(traced)


def _lost_in_steps(run: RunView, base_runs: Sequence[RunView], samples: float) -> dict[str, float]:
    """Return each cause's device-seconds beyond the baseline's; empty if phases are unknown."""
    base_chains = [base_run.chain for base_run in base_runs if base_run.chain]
    if run.chain is None or len(base_chains) < len(base_runs):
        return {}
    chain, *base_chains = comparable_chains([run.chain, *base_chains])
    per_sample = mean_compute_per_sample(base_chains)
    batch_growth = chain.samples / float(np.mean([base.samples for base in base_chains]))
    added = seconds_by_cause([chain], per_sample)
    base_added = seconds_by_cause(base_chains, per_sample)
    steps = samples * run.window.steps / run.window.samples
    lost = {}
    for cause in CAUSES:
        seconds, base_seconds = added[cause], base_added[cause]
        if seconds is not None and base_seconds is not None:
            # Compared at equal samples: the baseline may have fewer samples in a step.
            lost[cause] = run.devices * steps * (seconds - batch_growth * base_seconds)
    return lost
