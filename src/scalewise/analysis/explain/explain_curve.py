"""From a curve and its records to the causes of every point."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from scalewise.analysis.cost.rates import Rate, price_of
from scalewise.analysis.explain.boundary import find_node_boundary
from scalewise.analysis.explain.breakdown import (
    COMPUTE_AND_COMMUNICATION,
    Breakdown,
    Cost,
    Explanation,
    RankTime,
    ScalingVerdict,
    Usage,
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
from scalewise.analysis.explain.communication_time import (
    collective_bytes,
    communication_sentence,
    dominant_split,
)
from scalewise.analysis.explain.explain_text import (
    LoaderRates,
    PointFacts,
    PointText,
    SlowestRank,
    describe_point,
)
from scalewise.analysis.explain.flops_text import mfu_sentence
from scalewise.analysis.explain.guards import run_guards
from scalewise.analysis.explain.receipt import point_receipt
from scalewise.analysis.explain.run_view import RunView, runs_by_point
from scalewise.analysis.explain.trace_analysis import TraceComparison, compare_with_trace
from scalewise.analysis.explain.utilisation import device_utilisations, host_utilisations
from scalewise.analysis.explain.watched_facts import Finding, GuardKind
from scalewise.analysis.explain.whatif import Replay, what_if
from scalewise.analysis.measure import Point, ScalingCurve
from scalewise.analysis.measure.acceleration import same_device_kind
from scalewise.record.attempts import Attempt
from scalewise.record.node_samples import NodeRecord
from scalewise.record.read import RunRecord
from scalewise.record.trace import Trace

SCALES_WELL, SCALES_PARTLY = 0.8, 0.5
VERDICTS = ("badly", "partly", "well")
"""Efficiencies from which a curve scales well, and partly."""
FUSED_PHASE = "step"
"""The phase of an engine that does forward, backward, exchange and update as one piece."""
MAX_CLOCK_GAP_SECONDS = 0.1
"""Seconds between two clocks that are seen in the parts of a complete time."""


def explain(
    curve: ScalingCurve,
    records: Sequence[RunRecord],
    *,
    price: Rate | float | str | None = None,
    traces: Mapping[Path, Sequence[Trace]] | None = None,
    nodes: Mapping[Path, Sequence[NodeRecord]] | None = None,
    attempts: Mapping[Path, Sequence[Attempt]] | None = None,
) -> Explanation:
    """Return the causes of a curve, from the records it was measured from.

    ``price`` is that of one device for one hour, or a name of the price list;
    ``traces`` are those of each run's folder, where some were made, ``nodes`` what
    the samplers saw, and ``attempts`` all that were made at each run.
    """
    rate = None if price is None else price_of(price)
    each_hour = rate.per_device_hour if rate else None
    groups = list(runs_by_point(curve, records))
    base = groups[0][1]
    seen = run_guards(records)
    points = []
    for point, runs in groups:
        # Against another kind of device, a cause would be what the devices differ in.
        alike_devices = same_device_kind(point, curve.baseline)
        before, origin = (curve.baseline, base) if alike_devices else (point, runs)
        found = _breakdown(point, runs, before, origin, each_hour)
        if not alike_devices:
            found = replace(found, factors=unknown_causes())
        busy = _busy(runs, nodes or {})
        warnings = (*found.warnings, *_apart(busy))
        trace = _trace(runs, traces or {})
        paid = point_receipt(curve, point, runs, base, attempts or {}).priced(rate)
        points.append(replace(found, trace=trace, busy=busy, receipt=paid, warnings=warnings))
    return Explanation(
        study=curve.study,
        where=curve.where,
        points=tuple(points),
        scales=_scales(curve),
        boundary=find_node_boundary(
            [each for each, (point, _) in zip(points, groups) if point.hosts in (None, point.nodes)]
        ),
        correct=_of_kind("correct", seen),
        tune=_of_kind("tune", seen),
        price=each_hour,
        rate=rate,
        warnings=curve.warnings,
    )


def _of_kind(kind: GuardKind, seen: Sequence[Finding] | None) -> tuple[Finding, ...] | None:
    return None if seen is None else tuple(each for each in seen if each.kind == kind)


def _trace(
    runs: Sequence[RunView], traces: Mapping[Path, Sequence[Trace]]
) -> TraceComparison | None:
    """Hold the first of the runs that has traces against them."""
    for run in runs:
        if found := traces.get(run.record.folder):
            return compare_with_trace(run.record, found)
    return None


def _busy(runs: Sequence[RunView], nodes: Mapping[Path, Sequence[NodeRecord]]) -> Usage | None:
    """Return how devices and hosts were used while the first of the runs trained."""
    record = runs[0].record
    trains = [span for rank in record.ranks for span in rank.spans if span.name == "train"]
    seen = nodes.get(record.folder)
    if not seen or not trains:
        return None
    start, end = min(span.start for span in trains), max(span.end for span in trains)
    return Usage(device_utilisations(seen, start, end), host_utilisations(seen, start, end))


def _apart(busy: Usage | None) -> list[str]:
    """Say which node's clock tells another time than the first one's."""
    return [
        f"the clock of {host.host} is {abs(host.ahead):.2f} s "
        f"{'ahead of' if host.ahead > 0 else 'behind'} the first node's: parts of the complete "
        "time that begin on one node and end on another are off by as much"
        for host in (busy.hosts if busy else ())
        if host.ahead is not None and abs(host.ahead) - (host.within or 0.0) > MAX_CLOCK_GAP_SECONDS
    ]


def _scales(curve: ScalingCurve) -> ScalingVerdict | None:
    last = curve.points[-1]
    if len(curve.points) < 2 or last.efficiency is None:
        return None
    found = last.efficiency
    verdict = _verdict(found.value)
    if found.low is not None and found.high is not None:
        ends = {_verdict(found.low), _verdict(found.high)}
        if len(ends) > 1:
            ordered = [each for each in VERDICTS if each in {*ends, verdict}]
            verdict = f"{' or '.join(ordered)}, too uncertain to say"
    return ScalingVerdict(f"scales {verdict}", found, last.devices)


def _verdict(efficiency: float) -> str:
    return (
        "well"
        if efficiency >= SCALES_WELL
        else "partly"
        if efficiency >= SCALES_PARTLY
        else "badly"
    )


def _breakdown(
    point: Point,
    runs: Sequence[RunView],
    baseline: Point,
    base: Sequence[RunView],
    price: float | None,
) -> Breakdown:
    chains = [run.chain for run in runs if run.chain]
    origin = [run.chain for run in base if run.chain]
    known = len(chains) == len(runs) and len(origin) == len(base)
    step = float(np.mean([run.step for run in runs]))
    shown, added, ideal = unknown_causes(), unknown_causes("unexplained"), None
    added_before = unknown_causes()
    if known:
        both = comparable_chains([*chains, *origin])
        chains, origin = both[: len(chains)], both[len(chains) :]
        per_sample = mean_per_sample(origin)
        shown = relative_factors(
            factors_by_cause(chains, per_sample), factors_by_cause(origin, per_sample)
        )
        added, added_before = (
            seconds_by_cause(chains, per_sample),
            seconds_by_cause(origin, per_sample),
        )
        ideal = float(np.mean([per_sample * each.samples for each in chains]))
    ledgers = [run.ledger for run in runs if run.ledger] if known else []
    shares = _shares(chains, step, added) if known else {}
    spent = _spent(runs) if known else ()
    complete = {name: part.value for name, part in point.complete.items()}
    before = {name: part.value for name, part in baseline.complete.items()}
    told = _told(point, runs, base, step, ideal, (added, added_before), spent)
    exposed = _mean([each.exposed for each in ledgers])
    kinds = collective_bytes(runs[0].record)
    computed = _mean([each.computed if each.transfer_known else None for each in chains])
    replays = [Replay(run.ledger, _workers(run.record)) for run in runs if run.ledger]
    return Breakdown(
        devices=point.devices,
        nodes=point.nodes,
        runs=len(runs),
        efficiency=point.efficiency.value if point.efficiency else None,
        step=step,
        ideal=ideal,
        factors=shown,
        seconds=added,
        complete=complete,
        grown={
            name: complete.get(name, 0.0) - before.get(name, 0.0)
            for name in dict.fromkeys((*complete, *before))
        },
        shares=shares,
        regime=max((s, name) for name, s in shares.items() if s is not None)[1] if shares else None,
        compute=computed if known else None,
        exposed=exposed,
        hidden=_mean([None if each.hidden is None else each.hidden.mean() for each in ledgers]),
        ratio=None if exposed is None or not computed else exposed / computed,
        traffic=kinds,
        exchange=communication_sentence(runs[0].record.spec, kinds, exposed and exposed / step),
        flops_per_second=point.flops_per_second,
        mfu=point.mfu,
        operations=mfu_sentence(point),
        costs=_costs(point.devices, step, runs, added, price),
        ranks=spent,
        slowest=max(spent, key=lambda each: each.behind) if len(spent) > 1 else None,
        what_if=what_if(point, step, replays if known else ()),
        cause=told.cause,
        sentence=told.sentence,
        action=told.action,
        warnings=(*point.warnings, *told.unknown),
    )


def _shares(chains: Sequence[Chain], step: float, added: ByCause) -> ByCause:
    """Return what a step consists of, as shares of its measured length."""
    apart = all(each.transfer_known for each in chains)
    spent: ByCause = {
        "compute" if apart else COMPUTE_AND_COMMUNICATION: float(
            np.mean([each.computed for each in chains])
        ),
        "waiting": added["balance"],
        "input": added["input"],
        "communication": added["transfer"],
        "other": added["orchestration"],
    }
    return {name: None if each is None else each / step for name, each in spent.items()}


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


def _spent(runs: Sequence[RunView]) -> tuple[RankTime, ...]:
    """Return every rank's means, over the repeats too; it may have had a host in each."""
    ledgers = [run.ledger for run in runs if run.ledger]

    def means(rows: Sequence[Any]) -> list[float]:
        return [float(each) for each in np.mean([row.mean(axis=1) for row in rows], axis=0)]

    compute = means([each.compute for each in ledgers])
    waited = means([each.input for each in ledgers])
    other = means([each.other for each in ledgers])
    behind = means([each.own - each.typical(each.own) for each in ledgers])
    syncs = [each.sync for each in ledgers if each.sync is not None]
    sync = means(syncs) if len(syncs) == len(ledgers) else [None] * len(compute)
    hosts = [
        ", ".join(dict.fromkeys(each.host for each in ranks))
        for ranks in zip(*(run.record.ranks for run in runs))
    ]
    return tuple(
        RankTime(*each)
        for each in zip(range(len(hosts)), hosts, compute, waited, sync, other, behind, strict=True)
    )


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean over repeats; nothing unless all of them know it."""
    known = [each for each in values if each is not None]
    return float(np.mean(known)) if known and len(known) == len(values) else None


def _workers(record: RunRecord) -> int | None:
    """Return the workers that load samples; nothing for an engine that reads by itself."""
    if FUSED_PHASE in record.ranks[0].steps.phases:
        return None
    loader = record.ranks[0].notes.loader
    return loader.workers if loader else record.spec.workers


def _told(
    point: Point,
    runs: Sequence[RunView],
    base: Sequence[RunView],
    step: float,
    ideal: float | None,
    causes: tuple[ByCause, ByCause],
    spent: Sequence[RankTime],
) -> PointText:
    """Tell the point's story in words; ``causes`` are its seconds, and the baseline's."""
    added, added_before = causes
    chains = [run.chain for run in (*runs, *base)]
    expected = ideal
    if expected is None:  # What the baseline's pace would give, whatever it is made of.
        expected = float(np.mean([run.pace for run in base])) * _samples(runs)
    slowest = max(spent, key=lambda each: each.behind, default=None)
    samples = [run.ledger.samples for run in runs if run.ledger]
    return describe_point(
        PointFacts(
            devices=point.devices,
            step=step,
            ideal=expected,
            added=added,
            added_before=added_before,
            devices_before=base[0].record.spec.topology.world,
            phases_known=all(chains),
            transfer_known=all(each is None or each.transfer_known for each in chains),
            balance_known=all(each is None or each.balance_known for each in chains),
            loads=all(_workers(run.record) is not None for run in runs),
            way=dominant_split(runs[0].record.spec),
            batch=_samples(runs),
            batch_before=_samples(base),
            balance=SlowestRank(
                slowest.rank,
                slowest.host,
                slowest.behind,
                even=all(bool((each == each[0]).all()) for each in samples),
            )
            if slowest and len(spent) > 1
            else None,
            loaders=_loaders(runs[0].record, step - (added["input"] or 0.0), _samples(runs)),
        )
    )


def _samples(runs: Sequence[RunView]) -> float:
    """Return the samples of a device and step."""

    def of(run: RunView) -> float:
        return run.window.samples / run.window.steps / run.record.spec.topology.world

    return float(np.mean([of(run) for run in runs]))


def _loaders(record: RunRecord, step: float, samples: float) -> LoaderRates | None:
    """Return what the loaders alone deliver, where that was measured, and what is needed."""
    found = [rank.notes.loader for rank in record.ranks]
    rates = [loader.rate for loader in found if loader and loader.rate]
    if len(rates) < len(found) or not found[0]:
        return None
    return LoaderRates(
        delivered=float(sum(rates)),
        needed=len(found) * samples / step,
        workers=found[0].workers,
    )
