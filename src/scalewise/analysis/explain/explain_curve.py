"""Find the causes of lost efficiency at every point of a curve, from the records of its runs.

A ledger holds the seconds of each phase by rank and step. A chain starts at the ideal step and adds
one cause at a time up to the measured step. Guards check for faults that ruin training or scaling.
"""

from bisect import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from scalewise.analysis.cost.rates import Rate, price_of
from scalewise.analysis.explain.breakdown import (
    COMPUTE_AND_COMMUNICATION,
    Breakdown,
    Cost,
    Explanation,
    LoaderRates,
    PointFacts,
    RankTime,
    ScalingVerdict,
    find_node_boundary,
)
from scalewise.analysis.explain.chain import (
    CAUSES,
    UNKNOWN_CAUSES,
    ByCause,
    Chain,
    comparable_chains,
    factors_by_cause,
    mean_compute_per_sample,
    relative_factors,
    seconds_by_cause,
)
from scalewise.analysis.explain.environment import environment_of
from scalewise.analysis.explain.guards import run_guards
from scalewise.analysis.explain.rank_times import rank_times
from scalewise.analysis.explain.receipt import point_receipt
from scalewise.analysis.explain.run_view import RunView, collective_bytes, runs_by_point
from scalewise.analysis.explain.step_costs import loader_workers
from scalewise.analysis.explain.trace_analysis import compare_with_trace
from scalewise.analysis.explain.utilisation import Usage, usage
from scalewise.analysis.explain.whatif import what_if
from scalewise.analysis.measure import Doubt, Point, ScalingCurve
from scalewise.analysis.measure.acceleration import same_device_kind
from scalewise.record.attempts import Attempt
from scalewise.record.node_samples import NodeRecord
from scalewise.record.read import RunRecord
from scalewise.record.trace import Trace

GRADES, GRADE_LIMITS = ("badly", "partly", "well"), (0.5, 0.8)
"""Grades of a curve, and the lowest efficiencies of ``partly`` and ``well``."""
MIN_CAUSE_SHARE = 0.02
"""The largest cause is named only if it adds at least this share of a step."""
MAX_CLOCK_GAP_SECONDS = 0.1
"""A larger difference between the clocks of two nodes distorts parts of the complete time."""


def explain(
    curve: ScalingCurve,
    records: Sequence[RunRecord],
    *,
    price: Rate | float | str | None = None,
    traces: Mapping[Path, Sequence[Trace]] | None = None,
    nodes: Mapping[Path, Sequence[NodeRecord]] | None = None,
    attempts: Mapping[Path, Sequence[Attempt]] | None = None,
) -> Explanation:
    """Return the causes of lost efficiency at every point of a curve.
    ``price`` is per device-hour, or names an entry of the price list. ``traces``, ``nodes``
    (samples of devices and hosts) and ``attempts`` are keyed by run folder.
    """
    traces, nodes, attempts = traces or {}, nodes or {}, attempts or {}
    rate = None if price is None else price_of(price)
    hourly_price = rate.per_device_hour if rate else None
    groups = list(runs_by_point(curve, records))
    base_runs = groups[0][1]
    breakdowns = []
    bought_curve = curve.measured or curve  # A receipt is about the runs that were paid for.
    for (point, runs), bought_point in zip(groups, bought_curve.points):
        # A point on another kind of device is its own reference, and its factors are unknown.
        same_kind = same_device_kind(point, curve.baseline)
        reference, reference_runs = (curve.baseline, base_runs) if same_kind else (point, runs)
        breakdown = _breakdown(point, runs, reference, reference_runs, hourly_price)
        used = usage(runs[0].record, nodes.get(runs[0].record.folder, ()))
        traced = next((run.record for run in runs if traces.get(run.record.folder)), None)
        breakdowns.append(
            replace(
                breakdown,
                factors=breakdown.factors if same_kind else dict.fromkeys(CAUSES),
                trace=compare_with_trace(traced, traces[traced.folder]) if traced else None,
                busy=used,
                receipt=point_receipt(bought_curve, bought_point, runs, base_runs, attempts).priced(
                    rate
                ),
                warnings=(*breakdown.warnings, *_clock_doubts(used)),
            )
        )
    findings = run_guards(records)
    by_kind = {  # "correct": what makes training wrong; "tune": fix before using more devices.
        kind: None if findings is None else tuple(f for f in findings if f.kind == kind)
        for kind in ("correct", "tune")
    }
    return Explanation(
        study=curve.study,
        where=curve.where,
        points=tuple(breakdowns),
        scales=_scaling_verdict(curve),
        boundary=find_node_boundary(breakdowns),
        correct=by_kind["correct"],
        tune=by_kind["tune"],
        price=hourly_price,
        rate=rate,
        warnings=curve.warnings,
        doubts=curve.doubts,
        curve=curve,
        environment=environment_of(records),
    )


def _clock_doubts(used: Usage | None) -> list[Doubt]:
    """Return a doubt for each node whose clock differs from the first node's."""
    return [  # ``host.within`` is the uncertainty of ``host.ahead``.
        Doubt("clock off", {"host": host.host, "ahead": host.ahead})
        for host in (used.hosts if used else ())
        if host.ahead is not None and abs(host.ahead) - (host.within or 0.0) > MAX_CLOCK_GAP_SECONDS
    ]


def _scaling_verdict(curve: ScalingCurve) -> ScalingVerdict | None:
    last = curve.points[-1]
    if len(curve.points) < 2 or last.efficiency is None:
        return None
    values = (last.efficiency.low, last.efficiency.value, last.efficiency.high)
    indexes = sorted({bisect(GRADE_LIMITS, value) for value in values if value is not None})
    return ScalingVerdict(tuple(GRADES[i] for i in indexes), last.efficiency, last.devices)


@dataclass(frozen=True, slots=True)
class CauseTimes:
    """What each cause adds to the step of a point. Defaults: the runs recorded no phases."""

    chains: Sequence[Chain] = ()
    """One per run of the point; empty unless all runs, including the baseline's, have a chain."""
    ideal: float | None = None
    """Seconds of a step that only computes, with the baseline's compute seconds per sample."""
    factors: ByCause = field(default_factory=lambda: dict.fromkeys(CAUSES))
    seconds: ByCause = field(default_factory=UNKNOWN_CAUSES.copy)
    baseline_seconds: ByCause = field(default_factory=UNKNOWN_CAUSES.copy)
    doubts: tuple[Doubt, ...] = (Doubt("no phases"),)

    @property
    def compute(self) -> float | None:
        """Seconds of computation per step, including communication if it was not timed."""
        return _mean([chain.compute for chain in self.chains])

    @property
    def transfer_known(self) -> bool:
        """Whether communication was measured separately from computation."""
        return all(chain.transfer_known for chain in self.chains)

    def largest(self, step: float) -> str | None:
        """Return the cause that adds most to a step; None if its share is below MIN_CAUSE_SHARE."""
        added = {cause: self.seconds[cause] or 0.0 for cause in CAUSES}
        cause = max(CAUSES, key=lambda name: added[name])
        return cause if self.chains and added[cause] >= MIN_CAUSE_SHARE * step else None


def _cause_times(runs: Sequence[RunView], base_runs: Sequence[RunView]) -> CauseTimes:
    chains = [run.chain for run in (*runs, *base_runs) if run.chain]
    if len(chains) < len(runs) + len(base_runs):
        return CauseTimes()
    doubts = []
    if not all(chain.transfer_known for chain in chains):
        balance_known = all(chain.balance_known for chain in chains)
        doubts.append(Doubt("transfer unknown" if balance_known else "fused step"))
    comparable = comparable_chains(chains)
    chains, base_chains = comparable[: len(runs)], comparable[len(runs) :]
    per_sample = mean_compute_per_sample(base_chains)
    return CauseTimes(
        chains=chains,
        ideal=float(np.mean([per_sample * chain.samples for chain in chains])),
        factors=relative_factors(
            factors_by_cause(chains, per_sample), factors_by_cause(base_chains, per_sample)
        ),
        seconds=seconds_by_cause(chains, per_sample),
        baseline_seconds=seconds_by_cause(base_chains, per_sample),
        doubts=tuple(doubts),
    )


def _breakdown(
    point: Point,
    runs: Sequence[RunView],
    baseline: Point,
    base_runs: Sequence[RunView],
    price: float | None,
) -> Breakdown:
    """Return where the time of one point went; ``price`` is per device-hour."""
    times = _cause_times(runs, base_runs)
    step = float(np.mean([run.step for run in runs]))
    shares = _shares(times, step)
    runs_with_chain = runs if times.chains else []
    step_costs = [run.costs for run in runs_with_chain if run.costs]
    ranks = _rank_times(runs_with_chain)
    complete = {name: part.value for name, part in point.complete.items()}
    compute = times.compute if times.transfer_known else None
    exposed = _mean([costs.exposed for costs in step_costs])
    return Breakdown(
        devices=point.devices,
        nodes=point.nodes,
        runs=len(runs),
        efficiency=point.efficiency.value if point.efficiency else None,
        step=step,
        ideal=times.ideal,
        factors=times.factors,
        seconds=times.seconds,
        complete=complete,
        grown=_growth_since_baseline(complete, baseline),
        shares=shares,
        regime=max(shares, key=lambda name: (shares[name] or 0.0, name), default=None),
        compute=compute,
        exposed=exposed,
        hidden=_mean([costs.hidden for costs in step_costs]),
        ratio=None if exposed is None or not compute else exposed / compute,
        traffic=collective_bytes(runs[0].record),
        flops_per_second=point.flops_per_second,
        mfu=point.mfu,
        costs=_costs(point.devices, step, runs, times.seconds, price),
        ranks=ranks,
        slowest=max(ranks, key=lambda rank: rank.behind) if len(ranks) > 1 else None,
        heat=rank_times(runs),
        what_if=what_if(point, step, [costs.saved for costs in step_costs]),
        cause=times.largest(step),
        facts=_point_facts(point, runs, base_runs, times),
        warnings=(*point.warnings, *times.doubts),
    )


def _growth_since_baseline(complete: Mapping[str, float], baseline: Point) -> dict[str, float]:
    """Return by how many seconds each part of the complete time exceeds the baseline's."""
    base_parts = {name: part.value for name, part in baseline.complete.items()}
    return {
        name: complete.get(name, 0.0) - base_parts.get(name, 0.0)
        for name in dict.fromkeys((*complete, *base_parts))
    }


def _point_facts(
    point: Point, runs: Sequence[RunView], base_runs: Sequence[RunView], times: CauseTimes
) -> PointFacts:
    step = float(np.mean([run.step for run in runs]))
    batch, base_batch = (
        float(np.mean([run.window.samples / run.window.steps / run.devices for run in repeats]))
        for repeats in (runs, base_runs)
    )
    return PointFacts(
        point=point,
        spec=runs[0].record.spec,
        step_at_baseline_pace=float(np.mean([run.pace for run in base_runs])) * batch,
        baseline_devices=base_runs[0].devices,
        baseline_seconds=times.baseline_seconds,
        batch=batch,
        baseline_batch=base_batch,
        transfer_known=times.transfer_known,
        even_batches=all(run.costs.even_batches for run in runs if run.costs),
        has_workers=all(loader_workers(run.record) is not None for run in runs),
        loaders=_loader_rates(runs[0].record, step - (times.seconds["input"] or 0.0), batch),
    )


def _loader_rates(record: RunRecord, step: float, batch: float) -> LoaderRates | None:
    """Return the rates of the data loaders; None unless every rank measured its loader. ``step`` is
    the seconds of a step without waiting for input, ``batch`` the samples per device and step.
    """
    loaders = [loader for rank in record.ranks if (loader := rank.notes.loader) and loader.rate]
    if len(loaders) < len(record.ranks):
        return None
    return LoaderRates(
        delivered=float(sum(loader.rate or 0.0 for loader in loaders)),
        needed=len(loaders) * batch / step,
        workers=loaders[0].workers,
    )


def _shares(times: CauseTimes, step: float) -> ByCause:
    """Return what a step's time is spent on, as shares of the measured step; empty if unknown."""
    if not times.chains:
        return {}
    # Shares and causes have different names: ranks are "waiting" because of poor "balance".
    seconds: ByCause = {
        "compute" if times.transfer_known else COMPUTE_AND_COMMUNICATION: times.compute,
        "waiting": times.seconds["balance"],
        "input": times.seconds["input"],
        "communication": times.seconds["transfer"],
        "other": times.seconds["orchestration"],
    }
    return {name: None if part is None else part / step for name, part in seconds.items()}


def _costs(
    devices: int, step: float, runs: Sequence[RunView], added: ByCause, price: float | None
) -> dict[str, Cost]:
    """Return the cost of each known cause; ``added`` holds the seconds it adds to a step."""
    steps = float(np.mean([run.window.steps for run in runs]))
    costs = {}
    for cause in CAUSES:
        if (lost := added[cause]) is not None:
            idle_devices = devices * lost / step
            money = None if price is None else idle_devices * price
            costs[cause] = Cost(lost, lost * steps, idle_devices, money)
    return costs


def _rank_times(runs: Sequence[RunView]) -> tuple[RankTime, ...]:
    """Return every rank's seconds per step, mean over steps and repeats."""
    means_by_run = [run.costs.by_rank.values() for run in runs if run.costs]
    hosts = [
        ", ".join(dict.fromkeys(rank.host for rank in ranks))
        for ranks in zip(*(run.record.ranks for run in runs))
    ]
    seconds = [
        np.mean([means for means in repeats if means is not None], axis=0).tolist()
        if None not in repeats
        else [None] * len(hosts)
        for repeats in zip(*means_by_run)  # In the order of RankTime's fields.
    ]
    rows = enumerate(zip(hosts, *seconds, strict=True))
    return tuple(RankTime(rank, *row) for rank, row in rows)


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of a value over repeats; None unless it is known in all repeats."""
    numbers = [value for value in values if value is not None]
    return float(np.mean(numbers)) if numbers and len(numbers) == len(values) else None
