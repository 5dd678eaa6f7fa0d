"""Load curves, explanations and receipts (device-hours by use) from study folders or CSV files."""

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
from scalewise.analysis.simulate import Sweep, parse_sweep
from scalewise.analysis.simulate.sweep import SWEEP_HINT
from scalewise.errors import NewerSchema, NotEnoughData, RecordError, SpecError, parameter
from scalewise.record import batch_sharing, replicas
from scalewise.record.attempts import allocation_shares, attempts, bought
from scalewise.record.node_samples import node_samples_by_folder
from scalewise.record.read import RunRecord, read_run
from scalewise.record.schema import ProgramFacts
from scalewise.record.study_files import failure, finished, read_study
from scalewise.record.trace import Trace, read_traces
from scalewise.spec import RunSpec, StudySpec

CurveOrExplanation = TypeVar("CurveOrExplanation", ScalingCurve, Explanation)


def curves(
    paths: Sequence[Path],
    *,
    scaling: str | None = None,
    devices_per_node: int | None = None,
    in_order: bool = False,
) -> list[ScalingCurve]:
    """Return the curves of study folders and CSV files. The options are for CSV files only."""
    loaded: list[ScalingCurve] = []
    for path in paths:
        if path.is_dir():
            _refuse_csv_options(path, scaling or devices_per_node)
        if path.is_file():
            try:
                text = path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise RecordError(f"cannot read {path}: {error}") from error
            loaded.append(
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
            loaded += [curve for curve, _ in curves_with_records(path)]
    return loaded


def curve_and_records(
    path: Path,
    *,
    where: Mapping[str, Any] | None = None,
    scaling: str | None = None,
    devices_per_node: int | None = None,
) -> tuple[ScalingCurve, list[RunRecord]]:
    """Return one curve of a study folder or CSV file, and its run records (a CSV file has none)."""
    if path.is_dir():
        _refuse_csv_options(path, scaling)  # ``devices_per_node`` is checked below.
        curve, records = study_curve(path, where)
        if devices_per_node and curve.devices_per_node not in (None, devices_per_node):
            raise SpecError(
                f"{path} used {curve.devices_per_node} devices per node, not {devices_per_node}",
                hint=f"leave {parameter('devices_per_node')} out",
            )
        # A study that used a single node does not record how many devices a node has.
        per_node = curve.devices_per_node or devices_per_node
        return replace(curve, devices_per_node=per_node), records
    if where:
        raise SpecError(
            f"{path} holds one curve", hint=f"{parameter('where')} is for study folders"
        )
    (curve,) = curves([path], scaling=scaling, devices_per_node=devices_per_node, in_order=True)
    return curve, []


def _refuse_csv_options(folder: Path, options: object) -> None:
    if options:
        raise SpecError(
            f"{folder} is a study folder and records its own scaling and nodes",
            hint=f"{parameter('scaling')} and {parameter('devices_per_node')} are for CSV files",
        )


def select_curve(
    candidates: Sequence[CurveOrExplanation], where: Mapping[str, Any] | None, source: str | Path
) -> CurveOrExplanation:
    """Return the only curve (or explanation of a curve) that has the settings ``where``. Values are
    compared as text. The ``where`` of a curve holds those settings that its study varies.
    """
    required = dict(where or {})
    matching = [
        curve
        for curve in candidates
        if all(
            key in curve.where and str(curve.where[key]) == str(value)
            for key, value in required.items()
        )
    ]
    if len(matching) != 1:
        names = "; ".join(curve.name for curve in candidates)
        raise SpecError(
            f"{len(matching)} curves of {source} match {required}",
            hint=f"choose one with {parameter('where')}: {names}",
        )
    return matching[0]


def study_curve(
    folder: Path, where: Mapping[str, Any] | None = None
) -> tuple[ScalingCurve, list[RunRecord]]:
    """Return the only curve of a study with the settings ``where``, and its run records."""
    pairs = curves_with_records(folder)
    selected = select_curve([curve for curve, _ in pairs], where, folder)
    return next(pair for pair in pairs if pair[0] is selected)


def read_sweeps(paths: Sequence[Path]) -> list[Sweep]:
    """Read the collective sweeps that ``scalewise doctor --collectives`` wrote."""
    sweeps = []
    for path in paths:
        try:
            sweeps.append(parse_sweep(json.loads(path.read_text(encoding="utf-8"))))
        except OSError as error:
            raise RecordError(f"cannot read {path}: {error.strerror}", hint=SWEEP_HINT) from error
        except SpecError as error:
            raise SpecError(f"{path}: {error}", hint=error.hint) from error
        except ValueError as error:
            problem = f"{path} is no sweep of collectives: {error}"
            raise SpecError(problem, hint=SWEEP_HINT) from error
    return sweeps


def curves_with_records(folder: Path) -> list[tuple[ScalingCurve, list[RunRecord]]]:
    """Return a study's curves, each with its run records; runs that cannot be read are left out."""
    return [(curve, records) for curve, records, _ in _load_study(folder)]


def _load_study(folder: Path) -> list[tuple[ScalingCurve, list[RunRecord], NodeSamples]]:
    """Return a study's curves, each with its run records and with the node samples of all runs."""
    if folder.is_file():
        defect = (
            "holds results only, without the records that explain them"
            if folder.suffix == ".csv"
            else "is not a study folder"
        )
        raise SpecError(f"{folder} {defect}", hint="give the folder that `scalewise run` printed")
    study = read_study(folder)
    records, problems = _read_records(study, folder)
    if problems and not records:
        raise next(iter(problems.values()))
    warnings = _study_warnings(study, folder, records, problems)
    node_samples = node_samples_by_folder(records)
    loaded: list[tuple[ScalingCurve, list[RunRecord], NodeSamples]] = []
    for curve in scaling_curves(study, records, node_samples):
        # As text, because 1 == True == 1.0 would mix curves.
        curve_records = [
            record for record in records if repr(study.where(record.spec)) == repr(curve.where)
        ]
        faults = tuple(fault.sentence for fault in correctness_faults(curve_records))
        curve = replace(curve, warnings=(*warnings, *curve.warnings), not_correct=faults)
        loaded.append((curve, curve_records, node_samples))
    return loaded


def explanations(folder: Path, *, price: Rate | float | str | None = None) -> list[Explanation]:
    """Return an explanation of each curve of a study: where the time of its runs went."""
    return [
        explain(
            curve,
            records,
            price=price,
            traces=traces_by_folder(records),
            nodes=node_samples,
            attempts={record.folder: attempts(record.folder) for record in records},
        )
        for curve, records, node_samples in _load_study(folder)
    ]


def receipt(
    folder: Path,
    explained: Sequence[Explanation] | None = None,
    *,
    price: Rate | float | str | None = None,
) -> Receipt:
    """Return a study's device-hours, useful and lost by cause. ``explained`` saves reading runs."""
    run_ids = {run.id for run in read_study(folder).runs()}
    parts: list[Receipt] = []
    if explained is not None:
        points = [point for explanation in explained for point in explanation.points]
        parts += [point.receipt for point in points if point.receipt]
    elif any(finished(folder / run_id) for run_id in run_ids):
        for curve, records in curves_with_records(folder):
            by_folder = {record.folder: attempts(record.folder) for record in records}
            parts += receipts(curve, records, by_folder)
    for run_folder in (path.parent for path in folder.glob("*/job.json")):
        if run_folder.name not in run_ids:
            # "not asked" is the JSON key for runs that are no longer in the study.
            parts.append(wasted_receipt("not asked", attempts(run_folder)))
        elif not finished(run_folder):
            parts.append(wasted_receipt("failed", attempts(run_folder)))
    idle = sum(share.idle for share in allocation_shares(folder))
    parts.append(Receipt(bought=idle, lost={"idle": idle} if idle else {}))
    summed = sum_receipts(parts)
    # Finished runs that cannot be read were paid for too.
    unread_hours = bought(folder) - summed.bought
    if unread_hours > 1e-9 * summed.bought:  # Less is a rounding error.
        unread = Receipt(bought=unread_hours, lost={"unexplained": unread_hours})
        summed = sum_receipts([summed, unread])
    return summed.priced(None if price is None else price_of(price))


def traces_by_folder(records: Sequence[RunRecord]) -> dict[Path, tuple[Trace, ...]]:
    """Return the profiler traces of those runs that were traced, by run folder."""
    return {
        record.folder: read_traces(record.folder, len(record.ranks))
        for record in records
        if record.spec.trace
    }


def measured_curves(study: StudySpec, folder: Path) -> list[ScalingCurve]:
    """Return the curves of a study that may still be running; empty if no run can be read."""
    records, _ = _read_records(study, folder)
    try:
        return scaling_curves(study, records, node_samples_by_folder(records))
    except NotEnoughData:
        return []


def _read_records(
    study: StudySpec, folder: Path
) -> tuple[list[RunRecord], dict[RunSpec, RecordError]]:
    """Return the records of finished runs, and the errors of runs that cannot be read."""
    records: list[RunRecord] = []
    problems: dict[RunSpec, RecordError] = {}
    for run in study.runs():
        try:
            if finished(folder / run.id):
                records.append(read_run(folder / run.id, run))
        except NewerSchema:  # An upgrade of scalewise is needed: leaving the run out would hide it.
            raise
        except RecordError as problem:
            problems[run] = problem
    return records, problems


def _study_warnings(
    study: StudySpec,
    folder: Path,
    records: Sequence[RunRecord],
    problems: Mapping[RunSpec, RecordError],
) -> list[str]:
    """Return the warnings that all curves of a study share: missing runs, idle devices, defects."""
    warnings = [f"left out: {problem} ({problem.hint})" for problem in problems.values()]
    shares = allocation_shares(folder)
    total, idle = sum(share.bought for share in shares), sum(share.idle for share in shares)
    if idle:
        allocation_devices = max(share.allocation_devices for share in shares)
        warnings.append(
            f"all runs shared an allocation of {allocation_devices} devices: "
            f"{idle:.2f} of {total:.2f} device-hours ({idle / total:.0%}) were idle beside "
            "smaller runs"
        )
    runs = study.runs()
    finished_runs = {*problems, *(record.spec for record in records)}  # Readable or not.
    unfinished = [run for run in runs if run not in finished_runs]
    if records and unfinished:
        warnings.append(f"{len(unfinished)} of {len(runs)} runs are not finished")
    warnings += _watch_warnings(records)
    warnings += _sample_count_warnings(records)
    failures = ((run, failure(folder / run.id)) for run in unfinished if run.program)
    return warnings + [f"{run.topology}: {cause}" for run, cause in failures if cause]


def _watch_warnings(records: Sequence[RunRecord]) -> list[str]:
    """Return warnings about incomplete watching or traces, and ranks that exchange nothing."""
    warnings = []
    for note, text in (
        ("unwatched", "watching stopped before the end"),
        ("untraced", "no trace was recorded"),
    ):
        for record in records:
            reasons = (getattr(rank.notes, note) for rank in record.ranks)
            if reason := next(filter(None, reasons), None):
                warnings.append(f"{record.spec.topology}: {text}: {reason}")
    return warnings + [
        f"{record.spec.topology}: {replicas.NO_EXCHANGE}"
        for record in records
        if replicas.unsynchronised(_rank_facts(record))
    ]


def _sample_count_warnings(records: Sequence[RunRecord]) -> list[str]:
    """Return warnings where samples or steps of a user's program were inferred and may be wrong."""
    option = parameter("samples_per_step")
    inferred = [record for record in records if not record.spec.samples_per_step]
    warnings: list[str] = []
    for record in inferred:
        facts = _rank_facts(record)
        if batch_sharing.unclear(facts):
            warnings.append(f"{record.spec.topology}: {batch_sharing.UNCLEAR}, {option}")
        elif any(part_count > 1 for _, part_count in batch_sharing.parts(facts)):
            warnings.append(f"{record.spec.topology}: {batch_sharing.SHARED_SAMPLES_COUNTED_ONCE}")
    if any(_rank_facts(record)[0].sequence_first for record in inferred):
        warnings.append(
            "the model takes the sequence first, so the first dimension of its input may not be "
            f"the batch: give {option}"
        )
    if any(_rank_facts(record)[0].adds_calls for record in inferred):
        warnings.append(
            "no data loader was seen, and models are called several times per backward: each "
            "call was counted as separate samples; if the calls share one batch, give "
            f"{option}"
        )
    if any(_rank_facts(record)[0].manual_updates for record in records):
        warnings.append(
            "the program updates its weights without an optimizer: steps are inferred from "
            "weight changes"
        )
    return list(dict.fromkeys(warnings))


def _rank_facts(record: RunRecord) -> list[ProgramFacts]:
    return [rank.notes.facts for rank in record.ranks]
