"""Collect what was measured: curves from studies' folders, or from CSV files."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from scalewise.analysis.cost.rates import Rate, price_of
from scalewise.analysis.explain import (
    Explanation,
    Receipt,
    explain,
    receipts,
    sum_receipts,
    wasted_receipt,
)
from scalewise.analysis.explain.guards import correctness_faults
from scalewise.analysis.measure import ScalingCurve, curve_from_csv, scaling_curves
from scalewise.analysis.measure.energy import NodeSamples
from scalewise.analysis.simulate import Sweep, read_sweep
from scalewise.errors import NewerSchema, RecordError, SpecError
from scalewise.record import batch_sharing, replicas
from scalewise.record.allocation_log import stays
from scalewise.record.attempts import Attempt, attempts, bought
from scalewise.record.node_samples import sampled
from scalewise.record.read import RunRecord, read_run
from scalewise.record.study_files import failure, finished, read_study
from scalewise.record.trace import Trace, read_traces
from scalewise.spec import StudySpec

Curve = TypeVar("Curve", ScalingCurve, Explanation)


def curves(
    paths: Sequence[Path],
    *,
    scaling: str | None = None,
    devices_per_node: int | None = None,
    in_order: bool = False,
) -> list[ScalingCurve]:
    """Return what was measured: from studies' folders, or from CSV files."""
    found: list[ScalingCurve] = []
    for path in paths:
        if path.is_dir():
            _refuse_scaling(path, scaling or devices_per_node)
        if path.is_file():
            text = _read_csv(path)
            found.append(
                curve_from_csv(
                    text,
                    name=path.stem,
                    source=str(path),
                    scaling=scaling,
                    devices_per_node=devices_per_node,
                    in_order=in_order,
                )
            )
        else:
            found += [curve for curve, _ in recorded(path)]
    return found


def curve(
    path: Path,
    *,
    where: Mapping[str, Any] | None = None,
    scaling: str | None = None,
    devices_per_node: int | None = None,
) -> ScalingCurve:
    """Return the one curve a prediction is made from; a CSV's rows must grow."""
    found, _ = curve_and_records(
        path, where=where, scaling=scaling, devices_per_node=devices_per_node
    )
    return found


def curve_and_records(
    path: Path,
    *,
    where: Mapping[str, Any] | None = None,
    scaling: str | None = None,
    devices_per_node: int | None = None,
) -> tuple[ScalingCurve, list[RunRecord]]:
    """Return the one curve an answer is made from, and its runs; a CSV has none.

    A study's folder may leave the devices per node open, where it used one node
    only: then they can be given.
    """
    if path.is_dir():
        _refuse_scaling(path, scaling)
        found, runs = records(path, where)
        if devices_per_node and found.devices_per_node not in (None, devices_per_node):
            raise SpecError(
                f"{path} used {found.devices_per_node} devices per node, not {devices_per_node}",
                hint="leave --devices-per-node out",
            )
        per_node = found.devices_per_node or devices_per_node
        return replace(found, devices_per_node=per_node), runs
    if where:
        raise SpecError(f"{path} holds one curve", hint="--where is for studies' folders")
    (found,) = curves([path], scaling=scaling, devices_per_node=devices_per_node, in_order=True)
    return found, []


def _refuse_scaling(path: Path, given: object) -> None:
    if given:
        raise SpecError(
            f"{path} is a study's folder and knows its own scaling and nodes",
            hint="--scaling and --devices-per-node are for CSV files",
        )


def chosen(found: Sequence[Curve], where: Mapping[str, Any] | None, source: str | Path) -> Curve:
    """Return the one curve that matches; a command line has its values as text."""
    wanted = dict(where or {})
    matching = [
        each
        for each in found
        if all(key in each.where and str(each.where[key]) == str(wanted[key]) for key in wanted)
    ]
    if len(matching) != 1:
        names = "; ".join(each.name for each in found)
        raise SpecError(
            f"{len(matching)} curves of {source} match {wanted}",
            hint=f"choose one with --where KEY=VALUE, or where=… in Python: {names}",
        )
    return matching[0]


def records(
    folder: Path, where: Mapping[str, Any] | None = None
) -> tuple[ScalingCurve, list[RunRecord]]:
    """Return one curve of a study with the records behind it."""
    found = recorded(folder)
    wanted = chosen([curve for curve, _ in found], where, folder)
    return next(each for each in found if each[0] is wanted)


def sweeps(paths: Sequence[Path]) -> list[Sweep]:
    """Return the sweeps of collectives that doctor kept in these files."""
    return [_sweep(path) for path in paths]


def _sweep(path: Path) -> Sweep:
    made = "make one with `scalewise doctor --collectives`"
    try:
        return read_sweep(json.loads(path.read_text(encoding="utf-8")))
    except OSError as why:
        raise RecordError(f"cannot read {path}: {why.strerror}", hint=made) from why
    except SpecError as why:
        raise SpecError(f"{path}: {why}", hint=why.hint) from why
    except ValueError as why:
        raise SpecError(f"{path} is no sweep of collectives: {why}", hint=made) from why


def recorded(folder: Path) -> list[tuple[ScalingCurve, list[RunRecord]]]:
    """Return a study's curves from the runs that can be read, each with its records."""
    return [(curve, records) for curve, records, _ in _sampled(folder)]


def _sampled(folder: Path) -> list[tuple[ScalingCurve, list[RunRecord], NodeSamples]]:
    """Return the same with what the samplers saw: that is read once, for energy and for causes."""
    if folder.is_file():
        table = folder.suffix == ".csv"
        told = "holds results alone, and they do not tell where the time went"
        raise SpecError(
            f"{folder} {told if table else 'is no folder of a study'}",
            hint="give the folder that `scalewise run` printed",
        )
    study, records, warnings = _readable(folder)
    seen = sampled(records)
    found: list[tuple[ScalingCurve, list[RunRecord], NodeSamples]] = []
    for curve in scaling_curves(study, records, seen):
        runs = [each for each in records if repr(study.where(each.spec)) == repr(curve.where)]
        faults = tuple(guard.sentence for guard in correctness_faults(runs))
        warned = (*warnings, *curve.warnings)
        found.append((replace(curve, warnings=warned, not_correct=faults), runs, seen))
    return found


def explanations(folder: Path, *, price: Rate | float | str | None = None) -> list[Explanation]:
    """Return where the time of each of a study's curves went, from all that was recorded."""
    return [
        explain(
            curve,
            runs,
            price=price,
            traces=traces(runs),
            nodes=seen,
            attempts=made_at(runs),
        )
        for curve, runs, seen in _sampled(folder)
    ]


def receipt(
    folder: Path,
    found: Sequence[Explanation] | None = None,
    *,
    price: Rate | float | str | None = None,
) -> Receipt:
    """Return what a whole study has bought: its curves, and beside them what led to nothing.

    ``found`` are its explanations, where they are known already.
    """
    if found is not None:
        parts = [each.receipt for curve in found for each in curve.points if each.receipt]
    else:
        parts = [part for curve, runs in _there(folder) for part in _receipts(curve, runs)]
    asked = {run.id for run in read_study(folder).runs()}
    homes = [path.parent for path in folder.glob("*/job.json")]
    failed = [home for home in homes if home.name in asked and not finished(home)]
    others = [home for home in homes if home.name not in asked]
    beside = [wasted_receipt("failed", attempts(home)) for home in failed]
    beside += [wasted_receipt("not asked", attempts(home)) for home in others]
    idle = sum(stay.idle for stay in stays(folder))
    known = sum_receipts(
        [*parts, *beside, Receipt(bought=idle, lost={"idle": idle} if idle else {})]
    )
    # A finished run that cannot be read was paid for all the same.
    unread = bought(folder) - known.bought
    if unread > 1e-9 * known.bought:
        known = sum_receipts([known, Receipt(bought=unread, lost={"unexplained": unread})])
    return known.priced(None if price is None else price_of(price))


def _there(folder: Path) -> list[tuple[ScalingCurve, list[RunRecord]]]:
    """Return a study's curves, none where no run has finished."""
    runs = read_study(folder).runs()
    return recorded(folder) if any(finished(folder / run.id) for run in runs) else []


def _receipts(curve: ScalingCurve, runs: Sequence[RunRecord]) -> list[Receipt]:
    return receipts(curve, runs, made_at(runs))


def made_at(records: Sequence[RunRecord]) -> dict[Path, tuple[Attempt, ...]]:
    """Return every attempt that was made at these runs, by folder."""
    return {record.folder: attempts(record.folder) for record in records}


def traces(records: Sequence[RunRecord]) -> dict[Path, tuple[Trace, ...]]:
    """Return the traces of those runs that were asked for some, by folder."""
    return {
        each.folder: read_traces(each.folder, len(each.ranks))
        for each in records
        if each.spec.trace
    }


def _idle(folder: Path) -> str:
    """Say what sat idle in an allocation that was larger than most of its runs."""
    there = stays(folder)
    bought, idle = sum(stay.bought for stay in there), sum(stay.idle for stay in there)
    if not idle:
        return ""
    return (
        f"all runs shared an allocation of {max(stay.of for stay in there)} devices: of "
        f"{bought:.2f} device-hours {idle:.2f} ({idle / bought:.0%}) sat idle beside smaller runs"
    )


def _readable(folder: Path) -> tuple[StudySpec, list[RunRecord], list[str]]:
    """Return a study, its runs that can be read, and what is left out."""
    study = read_study(folder)
    runs = study.runs()
    there = [run for run in runs if finished(folder / run.id)]
    records, broken = [], []
    for run in there:
        try:
            records.append(read_run(folder / run.id, run))
        except NewerSchema:
            raise
        except RecordError as problem:
            broken.append(problem)
    if broken and not records:
        raise broken[0]
    told = [f"left out: {problem} ({problem.hint})" for problem in broken]
    if idle := _idle(folder):
        told.append(idle)
    if records and len(there) < len(runs):
        told.append(f"{len(runs) - len(there)} of {len(runs)} runs are not finished")
    causes = [(run, failure(folder / run.id)) for run in runs if run.program and run not in there]
    told += [
        f"{record.spec.topology}: watching stopped before the end: {why}"
        for record in records
        if (why := next((r.find("unwatched") for r in record.ranks if r.find("unwatched")), None))
    ]
    told += [
        f"{record.spec.topology}: there is no trace: {why}"
        for record in records
        if (why := next((r.find("untraced") for r in record.ranks if r.find("untraced")), None))
    ]
    told += [
        f"{record.spec.topology}: {replicas.ALONE}"
        for record in records
        if replicas.alone([rank.find("facts") or {} for rank in record.ranks])
    ]
    told += _shared(records)
    seen = [_facts(record) for record in records if not record.spec.samples_per_step]
    if any(facts.get("sequence_first") for facts in seen):
        told.append(
            "the model takes the sequence first, so its input's first side may not be the batch: "
            "say --samples-per-step"
        )
    if any(facts.get("adds_calls") for facts in seen):
        told.append(
            "no loader gives batches and models are called several times for one backward: each "
            "call counted as samples of its own; if they are parts of one, say --samples-per-step"
        )
    if any(_facts(record).get("by_hand") for record in records):
        told.append(
            "the program updates its weights by hand: its steps are taken from how they change"
        )
    told += [f"{run.topology}: {cause}" for run, cause in causes if cause]
    return study, records, told


def _shared(records: Sequence[RunRecord]) -> list[str]:
    """Say where ranks share samples, or may do so."""
    told = []
    for record in records:
        if record.spec.samples_per_step:
            continue
        facts = [rank.find("facts") or {} for rank in record.ranks]
        if batch_sharing.unclear(facts):
            told.append(f"{record.spec.topology}: {batch_sharing.UNCLEAR}")
        elif any(of > 1 for _, of in batch_sharing.parts(facts)):
            told.append(f"{record.spec.topology}: {batch_sharing.ONCE}")
    return list(dict.fromkeys(told))


def _facts(record: RunRecord) -> dict[str, Any]:
    """Return what was learned of a program on its first rank."""
    return record.ranks[0].find("facts") or {}


def _read_csv(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as why:
        raise RecordError(f"cannot read {path}: {why}") from why
