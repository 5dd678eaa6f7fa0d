"""From a curve and its records to the causes of every point."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from scalewise.analysis.cost.rates import Rate, price_of
from scalewise.analysis.explain.breakdown import (
    COMPUTE_AND_COMMUNICATION,
    Breakdown,
    Cost,
    Explanation,
    RankTime,
    ScalingVerdict,
    Usage,
    find_node_boundary,
)
from scalewise.analysis.explain.chain import (
    CAUSES,
    ByCause,
    Chain,
    comparable_chains,
    factors_by_cause,
    mean_per_sample,
    relative_factors,
    seconds_by_cause,
    unknown_causes,
)
from scalewise.analysis.explain.explain_text import (
    LoaderRates,
    PointFacts,
    SlowestRank,
    communication_sentence,
    describe_point,
    mfu_sentence,
)
from scalewise.analysis.explain.guards import run_guards
from scalewise.analysis.explain.guards.guard import Finding, GuardKind
from scalewise.analysis.explain.receipt import point_receipt
from scalewise.analysis.explain.run_view import (
    RunView,
    collective_bytes,
    dominant_split,
    runs_by_point,
)
from scalewise.analysis.explain.trace_analysis import TraceComparison, compare_with_trace
from scalewise.analysis.explain.utilisation import device_utilisations, host_utilisations
from scalewise.analysis.explain.whatif import Replay, what_if
from scalewise.analysis.measure import Point, ScalingCurve
from scalewise.analysis.measure.acceleration import same_device_kind
from scalewise.analysis.measure.ledger import Numbers
from scalewise.record.attempts import Attempt
from scalewise.record.node_samples import NodeRecord
from scalewise.record.read import RunRecord
from scalewise.record.trace import Trace

SCALES_WELL, SCALES_PARTLY = 0.8, 0.5
"""Efficiencies from which a curve scales well, and partly."""
VERDICTS = ("badly", "partly", "well")
FUSED_PHASE = "step"
"""The phase of a framework that runs forward, backward, exchange and update as one."""
MAX_CLOCK_GAP_SECONDS = 0.1
"""Clocks that differ by more distort the parts of a complete time."""


def explain(
    curve: ScalingCurve,
    records: Sequence[RunRecord],
    *,
    price: Rate | float | str | None = None,
    traces: Mapping[Path, Sequence[Trace]] | None = None,
    nodes: Mapping[Path, Sequence[NodeRecord]] | None = None,
    attempts: Mapping[Path, Sequence[Attempt]] | None = None,
) -> Explanation:
    """Return the causes of a curve, from the records that it was measured from.

    ``price`` is that of one device for one hour, or a name of the price list. The others
    are by run folder: the ``traces`` of a profiler, the samples of its ``nodes``, and all
    ``attempts`` at it.
    """
    rate = None if price is None else price_of(price)
    hourly_price = rate.per_device_hour if rate else None
    groups = list(runs_by_point(curve, records))
    base_runs = groups[0][1]
    breakdowns = []
    for point, runs in groups:
        # Against another kind of device, a cause would be the difference of the devices.
        same_kind = same_device_kind(point, curve.baseline)
        baseline, origin = (curve.baseline, base_runs) if same_kind else (point, runs)
        breakdown = _breakdown(point, runs, baseline, origin, hourly_price)
        usage = _usage(runs, nodes or {})
        breakdowns.append(
            replace(
                breakdown,
                factors=breakdown.factors if same_kind else unknown_causes(),
                trace=_trace_comparison(runs, traces or {}),
                busy=usage,
                receipt=point_receipt(curve, point, runs, base_runs, attempts or {}).priced(rate),
                warnings=(*breakdown.warnings, *_clock_warnings(usage)),
            )
        )
    findings = run_guards(records)
    # Points that were rehearsed on fewer hosts than nodes did not use the network.
    on_real_nodes = [
        breakdown
        for breakdown, (point, _) in zip(breakdowns, groups)
        if point.hosts in (None, point.nodes)
    ]
    return Explanation(
        study=curve.study,
        where=curve.where,
        points=tuple(breakdowns),
        scales=_scaling_verdict(curve),
        boundary=find_node_boundary(on_real_nodes),
        correct=_of_kind("correct", findings),
        tune=_of_kind("tune", findings),
        price=hourly_price,
        rate=rate,
        warnings=curve.warnings,
    )


def _of_kind(kind: GuardKind, findings: Sequence[Finding] | None) -> tuple[Finding, ...] | None:
    if findings is None:
        return None
    return tuple(finding for finding in findings if finding.kind == kind)


def _trace_comparison(
    runs: Sequence[RunView], traces: Mapping[Path, Sequence[Trace]]
) -> TraceComparison | None:
    """Return the comparison of the first run that has traces with them."""
    for run in runs:
        if run_traces := traces.get(run.record.folder):
            return compare_with_trace(run.record, run_traces)
    return None


def _usage(runs: Sequence[RunView], nodes: Mapping[Path, Sequence[NodeRecord]]) -> Usage | None:
    """Return how devices and hosts were used while the first of the runs trained."""
    record = runs[0].record
    trains = [span for rank in record.ranks for span in rank.spans if span.name == "train"]
    samples = nodes.get(record.folder)
    if not samples or not trains:
        return None
    start, end = min(span.start for span in trains), max(span.end for span in trains)
    return Usage(device_utilisations(samples, start, end), host_utilisations(samples, start, end))


def _clock_warnings(usage: Usage | None) -> list[str]:
    """Return a warning for each node whose clock differs from the first node's."""
    return [
        f"the clock of {host.host} is {abs(host.ahead):.2f} s "
        f"{'ahead of' if host.ahead > 0 else 'behind'} the first node's: parts of the complete "
        "time that begin on one node and end on another are off by as much"
        for host in (usage.hosts if usage else ())
        if host.ahead is not None and abs(host.ahead) - (host.within or 0.0) > MAX_CLOCK_GAP_SECONDS
    ]


def _scaling_verdict(curve: ScalingCurve) -> ScalingVerdict | None:
    last = curve.points[-1]
    if len(curve.points) < 2 or last.efficiency is None:
        return None
    efficiency = last.efficiency
    verdict = _verdict(efficiency.value)
    if efficiency.low is not None and efficiency.high is not None:
        ends = {_verdict(efficiency.low), _verdict(efficiency.high)}
        if len(ends) > 1:
            possible = [name for name in VERDICTS if name in {*ends, verdict}]
            verdict = f"{' or '.join(possible)}, too uncertain to say"
    return ScalingVerdict(f"scales {verdict}", efficiency, last.devices)


def _verdict(efficiency: float) -> str:
    if efficiency >= SCALES_WELL:
        return "well"
    return "partly" if efficiency >= SCALES_PARTLY else "badly"


@dataclass(frozen=True, slots=True)
class CauseTimes:
    """The causes of a point against the baseline, from the chains of their runs."""

    chains: Sequence[Chain] = ()
    """Of the point's runs; empty where a run, or one of the baseline's, has none."""
    ideal: float | None = None
    factors: ByCause = field(default_factory=unknown_causes)
    seconds: ByCause = field(default_factory=lambda: unknown_causes("unexplained"))
    baseline_seconds: ByCause = field(default_factory=unknown_causes)


def _cause_times(runs: Sequence[RunView], base_runs: Sequence[RunView]) -> CauseTimes:
    chains = [run.chain for run in (*runs, *base_runs) if run.chain]
    if len(chains) < len(runs) + len(base_runs):
        return CauseTimes()
    comparable = comparable_chains(chains)
    chains, base_chains = comparable[: len(runs)], comparable[len(runs) :]
    per_sample = mean_per_sample(base_chains)
    return CauseTimes(
        chains=chains,
        ideal=float(np.mean([per_sample * chain.samples for chain in chains])),
        factors=relative_factors(
            factors_by_cause(chains, per_sample), factors_by_cause(base_chains, per_sample)
        ),
        seconds=seconds_by_cause(chains, per_sample),
        baseline_seconds=seconds_by_cause(base_chains, per_sample),
    )


def _breakdown(
    point: Point,
    runs: Sequence[RunView],
    baseline: Point,
    base_runs: Sequence[RunView],
    price: float | None,
) -> Breakdown:
    """Return the causes of one point; ``price`` is that of a device-hour."""
    times = _cause_times(runs, base_runs)
    step = float(np.mean([run.step for run in runs]))
    shares = _shares(times, step)
    ranks = _rank_times(runs) if times.chains else ()
    complete = {name: part.value for name, part in point.complete.items()}
    before = {name: part.value for name, part in baseline.complete.items()}
    text = describe_point(_point_facts(point, runs, base_runs, times, ranks))
    replays = [Replay(run.ledger, _workers(run.record)) for run in runs if run.ledger]
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
        grown={
            name: complete.get(name, 0.0) - before.get(name, 0.0)
            for name in dict.fromkeys((*complete, *before))
        },
        shares=shares,
        regime=max(shares, key=lambda name: (shares[name] or 0.0, name), default=None),
        **_communication(times, runs, step),
        flops_per_second=point.flops_per_second,
        mfu=point.mfu,
        operations=mfu_sentence(point),
        costs=_costs(point.devices, step, runs, times.seconds, price),
        ranks=ranks,
        slowest=_slowest(ranks),
        what_if=what_if(point, step, replays if times.chains else ()),
        cause=text.cause,
        sentence=text.sentence,
        action=text.action,
        warnings=(*point.warnings, *text.unknown),
    )


def _communication(times: CauseTimes, runs: Sequence[RunView], step: float) -> dict[str, Any]:
    """Return the fields of a breakdown for computation and communication."""
    ledgers = [run.ledger for run in runs if run.ledger] if times.chains else []
    hidden = [None if ledger.hidden is None else ledger.hidden.mean() for ledger in ledgers]
    compute = _mean([chain.compute if chain.transfer_known else None for chain in times.chains])
    exposed = _mean([ledger.exposed for ledger in ledgers])
    payload_bytes = collective_bytes(runs[0].record)
    share = None if exposed is None else exposed / step
    return {
        "compute": compute,
        "exposed": exposed,
        "hidden": _mean(hidden),
        "ratio": None if exposed is None or not compute else exposed / compute,
        "traffic": payload_bytes,
        "exchange": communication_sentence(runs[0].record.spec, payload_bytes, share),
    }


def _slowest(ranks: Sequence[RankTime]) -> RankTime | None:
    return max(ranks, key=lambda rank: rank.behind) if len(ranks) > 1 else None


def _shares(times: CauseTimes, step: float) -> ByCause:
    """Return the parts of a step as shares of its measured length; empty if unknown."""
    if not times.chains:
        return {}
    separate = all(chain.transfer_known for chain in times.chains)
    seconds: ByCause = {
        "compute" if separate else COMPUTE_AND_COMMUNICATION: float(
            np.mean([chain.compute for chain in times.chains])
        ),
        "waiting": times.seconds["balance"],
        "input": times.seconds["input"],
        "communication": times.seconds["transfer"],
        "other": times.seconds["orchestration"],
    }
    return {name: None if part is None else part / step for name, part in seconds.items()}


def _costs(
    devices: int, step: float, runs: Sequence[RunView], added: ByCause, price: float | None
) -> dict[str, Cost]:
    steps = float(np.mean([run.window.steps for run in runs]))
    costs = {}
    for cause in CAUSES:
        lost = added[cause]
        if lost is not None:
            idle = devices * lost / step
            costs[cause] = Cost(lost, lost * steps, idle, None if price is None else idle * price)
    return costs


def _rank_times(runs: Sequence[RunView]) -> tuple[RankTime, ...]:
    """Return every rank's mean seconds over steps and repeats, with its host in each repeat."""
    ledgers = [run.ledger for run in runs if run.ledger]

    def means(matrices: Sequence[Numbers]) -> list[float]:
        return [float(mean) for mean in np.mean([m.mean(axis=1) for m in matrices], axis=0)]

    compute = means([ledger.compute for ledger in ledgers])
    input_wait = means([ledger.input for ledger in ledgers])
    other = means([ledger.other for ledger in ledgers])
    behind = means([ledger.own - ledger.typical(ledger.own) for ledger in ledgers])
    syncs = [ledger.sync for ledger in ledgers if ledger.sync is not None]
    sync = means(syncs) if len(syncs) == len(ledgers) else [None] * len(compute)
    hosts = [
        ", ".join(dict.fromkeys(rank.host for rank in ranks))
        for ranks in zip(*(run.record.ranks for run in runs))
    ]
    columns = zip(range(len(hosts)), hosts, compute, input_wait, sync, other, behind, strict=True)
    return tuple(RankTime(*row) for row in columns)


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean over repeats; None unless all of them have a number."""
    numbers = [value for value in values if value is not None]
    return float(np.mean(numbers)) if numbers and len(numbers) == len(values) else None


def _workers(record: RunRecord) -> int | None:
    """Return the number of loader workers; None for a framework that reads the data itself."""
    if FUSED_PHASE in record.ranks[0].steps.phases:
        return None
    loader = record.ranks[0].notes.loader
    return loader.workers if loader else record.spec.workers


def _point_facts(
    point: Point,
    runs: Sequence[RunView],
    base_runs: Sequence[RunView],
    times: CauseTimes,
    ranks: Sequence[RankTime],
) -> PointFacts:
    """Return what the sentences about a point are made from."""
    step = float(np.mean([run.step for run in runs]))
    batch = _samples_per_device(runs)
    chains = [run.chain for run in (*runs, *base_runs) if run.chain]
    slowest = _slowest(ranks)
    samples = [run.ledger.samples for run in runs if run.ledger]
    even = all(bool((rows == rows[0]).all()) for rows in samples)
    return PointFacts(
        devices=point.devices,
        step=step,
        # Without causes: what the baseline's pace would give, whatever it includes.
        ideal=float(np.mean([run.pace for run in base_runs])) * batch
        if times.ideal is None
        else times.ideal,
        added=times.seconds,
        added_before=times.baseline_seconds,
        devices_before=base_runs[0].record.spec.topology.world,
        phases_known=bool(times.chains),
        transfer_known=all(chain.transfer_known for chain in chains),
        balance_known=all(chain.balance_known for chain in chains),
        has_workers=all(_workers(run.record) is not None for run in runs),
        split=dominant_split(runs[0].record.spec),
        batch=batch,
        batch_before=_samples_per_device(base_runs),
        balance=SlowestRank(slowest.rank, slowest.host, slowest.behind, even) if slowest else None,
        loaders=_loader_rates(runs[0].record, step - (times.seconds["input"] or 0.0), batch),
    )


def _samples_per_device(runs: Sequence[RunView]) -> float:
    """Return the samples of one device in one step."""
    return float(np.mean([run.window.samples / run.window.steps / run.devices for run in runs]))


def _loader_rates(record: RunRecord, step: float, samples: float) -> LoaderRates | None:
    """Return what the loaders deliver without training and what is needed; None if unmeasured.

    ``step`` is in seconds without waiting for input, ``samples`` are those of a device.
    """
    loaders = [loader for rank in record.ranks if (loader := rank.notes.loader) and loader.rate]
    if len(loaders) < len(record.ranks):
        return None
    return LoaderRates(
        delivered=float(sum(loader.rate or 0.0 for loader in loaders)),
        needed=len(loaders) * samples / step,
        workers=loaders[0].workers,
    )
