"""Load curves, explanations and receipts (device-hours by use) from study folders or CSV files."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from scalewise.analysis.certify import Certificate
from scalewise.analysis.compare import Side, side_of_study
from scalewise.analysis.cost.rates import Rate, price_of
from scalewise.analysis.doubts import with_doubts
from scalewise.analysis.explain import (
    Explanation,
    Receipt,
    explain,
    receipts,
    sum_receipts,
    wasted_receipt,
)
from scalewise.analysis.full_run import full_run_curve
from scalewise.analysis.measure import Doubt, ScalingCurve, curve_from_csv, scaling_curves
from scalewise.analysis.measure.doubt import UNKNOWN_ERROR, DoubtKind
from scalewise.analysis.measure.energy import NodeSamples
from scalewise.analysis.measure.logs import looks_like_log
from scalewise.analysis.measure.table_layout import is_table
from scalewise.analysis.measure.table_lines import decode_table
from scalewise.analysis.simulate import Sweep, parse_sweep
from scalewise.analysis.simulate.sweep import SWEEP_HINT
from scalewise.certificates import study_certificates
from scalewise.errors import (
    NewerSchema,
    NotEnoughData,
    NotReadable,
    RecordError,
    SpecError,
    cut,
    parameter,
)
from scalewise.files import access_hint, read_file
from scalewise.load_run import NODE_PROBLEM, load_run
from scalewise.record import batch_sharing
from scalewise.record.attempts import allocation_shares, attempts, attempts_problem, bought
from scalewise.record.json_files import read_json
from scalewise.record.node_samples import node_samples_by_folder
from scalewise.record.read import RunRecord
from scalewise.record.schema import ProgramFacts
from scalewise.record.study_files import (
    failure,
    finished,
    outcome_problem,
    read_study,
)
from scalewise.record.trace import Trace, read_traces
from scalewise.spec import FullRun, RunSpec, StudySpec

TABLE_LIMIT = 4 << 20
"""Bytes of the largest table that is read."""
FullRunChoice = FullRun | Literal["as measured"] | None
"""A full run; or none, also where the study has one of its own; None: that of the study."""
CurveOrExplanation = TypeVar("CurveOrExplanation", ScalingCurve, Explanation)


def curves(
    paths: Sequence[Path],
    *,
    scaling: str | None = None,
    devices_per_node: int | None = None,
    in_order: bool = False,
    full_run: FullRunChoice = None,
    samples_per_step: int | None = None,
) -> list[ScalingCurve]:
    """Return the curves of study folders and CSV files, for the full run if one is given. A study
    may have a full run of its own. ``samples_per_step`` are those of a rank of a user's program, if
    they were not seen; the other options are for CSV files only.
    """
    loaded: list[ScalingCurve] = []
    for path in paths:
        if path.is_dir():
            _refuse_csv_options(path, scaling or devices_per_node)
        if path.is_file():
            curve = _table_curve(path, scaling, devices_per_node, in_order=in_order)
            curve = with_doubts(curve)
            loaded.append(
                full_run_curve(curve, full_run) if isinstance(full_run, FullRun) else curve
            )
        else:
            loaded += [curve for curve, _ in curves_with_records(path, full_run, samples_per_step)]
    return loaded


def _table_curve(
    path: Path, scaling: str | None, devices_per_node: int | None, *, in_order: bool
) -> ScalingCurve:
    """Return the curve of a table; a log is refused with the command that makes a table of it."""
    data = b""
    try:
        data = read_file(path, TABLE_LIMIT)
        return curve_from_csv(
            decode_table(data),
            name=path.stem,
            source=str(path),
            scaling=scaling,
            devices_per_node=devices_per_node,
            in_order=in_order,
        )
    except (OSError, ValueError) as error:  # A SpecError is a ValueError too.
        if not is_table(data) and looks_like_log(data):
            hint = f"make a table of it: scalewise import {shlex.quote(str(path))} -o study.csv"
            raise SpecError(f"{path} is a log, not a table", hint=hint) from error
        if isinstance(error, SpecError):
            raise
        if isinstance(error, NotReadable):
            raise
        if isinstance(error, OSError):
            text = f"cannot read {path}: {error.strerror}"
            raise RecordError(text, hint=access_hint(error)) from error
        text = f"cannot read {path}: {cut(str(error), 200)}"
        raise RecordError(text, hint="save it as text: CSV in UTF-8") from error


def curve_and_records(
    path: Path,
    *,
    where: Mapping[str, Any] | None = None,
    scaling: str | None = None,
    devices_per_node: int | None = None,
    full_run: FullRunChoice = None,
    samples_per_step: int | None = None,
) -> tuple[ScalingCurve, list[RunRecord]]:
    """Return one curve of a study folder or CSV file, and its run records (a CSV file has none)."""
    if path.is_dir():
        _refuse_csv_options(path, scaling)  # ``devices_per_node`` is checked below.
        curve, records = study_curve(path, where, full_run, samples_per_step)
        if devices_per_node and curve.devices_per_node not in (None, devices_per_node):
            raise SpecError(
                f"{path} used {curve.devices_per_node} devices per node, not {devices_per_node}",
                hint=f"leave {parameter('devices_per_node')} out",
            )
        on_one_node = max((p.devices for p in curve.points if p.nodes == 1), default=1)
        if devices_per_node and devices_per_node < on_one_node:
            raise SpecError(
                f"{path} used {on_one_node} devices on one node, more than "
                f"{parameter('devices_per_node', devices_per_node)}",
                hint=f"give {on_one_node} or more",
            )
        # A study that used a single node does not record how many devices a node has.
        per_node = curve.devices_per_node or devices_per_node
        return replace(curve, devices_per_node=per_node), records
    if where:
        raise SpecError(
            f"{path} holds one curve", hint=f"{parameter('where')} is for study folders"
        )
    (curve,) = curves(
        [path],
        scaling=scaling,
        devices_per_node=devices_per_node,
        in_order=True,
        full_run=full_run,
    )
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
    folder: Path,
    where: Mapping[str, Any] | None = None,
    full_run: FullRunChoice = None,
    samples_per_step: int | None = None,
) -> tuple[ScalingCurve, list[RunRecord]]:
    """Return the only curve of a study with the settings ``where``, and its run records."""
    pairs = curves_with_records(folder, full_run, samples_per_step)
    selected = select_curve([curve for curve, _ in pairs], where, folder)
    return next(pair for pair in pairs if pair[0] is selected)


def read_sweeps(paths: Sequence[Path]) -> list[Sweep]:
    """Read the collective sweeps that ``scalewise doctor --collectives`` wrote."""
    sweeps = []
    for path in paths:
        try:
            sweeps.append(parse_sweep(json.loads(read_file(path, TABLE_LIMIT))))
        except OSError as error:
            raise RecordError(f"cannot read {path}: {error.strerror}", hint=SWEEP_HINT) from error
        except SpecError as error:
            raise SpecError(f"{path}: {error}", hint=error.hint) from error
        except (ValueError, RecursionError) as error:
            problem = f"{path} is no sweep of collectives: {cut(str(error), 200)}"
            raise SpecError(problem, hint=SWEEP_HINT) from error
    return sweeps


def curves_with_records(
    folder: Path, full_run: FullRunChoice = None, samples_per_step: int | None = None
) -> list[tuple[ScalingCurve, list[RunRecord]]]:
    """Return a study's curves, each with its run records; runs that cannot be read are left out."""
    loaded = _load_study(folder, full_run, samples_per_step)
    return [(curve, records) for curve, records, _ in loaded]


def _load_study(
    folder: Path, full_run: FullRunChoice = None, samples_per_step: int | None = None
) -> list[tuple[ScalingCurve, list[RunRecord], NodeSamples]]:
    """Return a study's curves, each with its run records and with the node samples of all runs."""
    if folder.is_file():
        defect = (
            "holds results only, without the records that explain them"
            if folder.suffix == ".csv"
            else "is not a study folder"
        )
        raise SpecError(f"{folder} {defect}", hint="give the folder that `scalewise run` printed")
    study = read_study(folder)
    records, problems = _read_records(study, folder, samples_per_step)
    if problems and not records:
        raise next(iter(problems.values()))
    warnings = _study_doubts(study, folder, records, problems)
    certified, damage = _read_certificates(folder)
    warnings += damage
    node_samples = node_samples_by_folder(records)
    loaded: list[tuple[ScalingCurve, list[RunRecord], NodeSamples]] = []
    for curve in scaling_curves(study, records, node_samples):
        # As text, because 1 == True == 1.0 would mix curves.
        curve_records = [
            record for record in records if repr(study.where(record.spec)) == repr(curve.where)
        ]
        watched = (*_watch_doubts(curve_records), *_sample_count_doubts(curve_records))
        of_curve = tuple(item for item in certified if repr(item.where) == repr(curve.where))
        found = (*watched, *_certificate_doubts(of_curve))
        curve = replace(curve, certificates=of_curve, warnings=(*warnings, *found, *curve.warnings))
        curve = for_full_run(with_doubts(curve, curve_records), study, full_run)
        loaded.append((curve, curve_records, node_samples))
    return loaded


def for_full_run(
    curve: ScalingCurve, study: StudySpec, full_run: FullRunChoice = None
) -> ScalingCurve:
    """Return the curve for this full run, or else for that of its study, if there is one."""
    if full_run is None and study.full_run is not None:
        full_run = FullRun.parse(study.full_run)
    return full_run_curve(curve, full_run) if isinstance(full_run, FullRun) else curve


def explanations(
    folder: Path,
    *,
    price: Rate | float | str | None = None,
    full_run: FullRunChoice = None,
    samples_per_step: int | None = None,
) -> list[Explanation]:
    """Return an explanation of each curve of a study: where the time of its runs went, or that of
    the full run.
    """
    pairs = explained_curves(
        folder, price=price, full_run=full_run, samples_per_step=samples_per_step
    )
    return [explanation for _, explanation in pairs]


def explained_curves(
    folder: Path,
    *,
    price: Rate | float | str | None = None,
    full_run: FullRunChoice = None,
    samples_per_step: int | None = None,
) -> list[tuple[ScalingCurve, Explanation]]:
    """Return the curves of a study, each with its explanation."""
    loaded = []
    not_counted = _attempt_doubts(folder)
    for curve, records, node_samples in _load_study(folder, full_run, samples_per_step):
        curve = replace(
            curve,
            warnings=(*curve.warnings, *not_counted),
            doubts=(*curve.doubts, *not_counted),
        )
        explanation = explain(
            curve,
            records,
            price=price,
            traces=traces_by_folder(records),
            nodes=node_samples,
            attempts={record.folder: attempts(record.folder) for record in records},
        )
        loaded.append((curve, explanation))
    return loaded


def _attempt_doubts(folder: Path) -> list[Doubt]:
    """Return a doubt for each run of which the failed attempts cannot be counted."""
    homes = sorted({path.parent for path in folder.glob("*/*.json")})
    problems = filter(None, map(attempts_problem, homes))
    return [
        Doubt("attempts unread", {"problem": str(problem), "hint": problem.hint})
        for problem in problems
    ]


def all_explained(
    paths: Sequence[Path],
    *,
    scaling: str | None = None,
    devices_per_node: int | None = None,
    full_run: FullRunChoice = None,
    price: Rate | None = None,
    samples_per_step: int | None = None,
) -> list[tuple[Path, ScalingCurve, Explanation | None]]:
    """Return all curves of study folders and CSV files, each with its source and, from a folder,
    its explanation. The first two options are for CSV files only.
    """
    loaded: list[tuple[Path, ScalingCurve, Explanation | None]] = []
    for path in paths:
        if path.is_dir():
            _refuse_csv_options(path, scaling or devices_per_node)
            pairs = explained_curves(
                path, full_run=full_run, price=price, samples_per_step=samples_per_step
            )
            loaded += [(path, curve, explanation) for curve, explanation in pairs]
        else:
            table = curves(
                [path], scaling=scaling, devices_per_node=devices_per_node, full_run=full_run
            )
            loaded += [(path, curve, None) for curve in table]
    return loaded


def curves_with_runs(
    paths: Sequence[Path],
    *,
    scaling: str | None = None,
    devices_per_node: int | None = None,
    full_run: FullRunChoice = None,
    samples_per_step: int | None = None,
) -> list[tuple[ScalingCurve, list[RunRecord], NodeSamples]]:
    """Return all curves of study folders and CSV files, each with its run records and the node
    samples of its study; a CSV file has none. The first two options are for CSV files only.
    """
    loaded: list[tuple[ScalingCurve, list[RunRecord], NodeSamples]] = []
    for path in paths:
        if path.is_dir():
            _refuse_csv_options(path, scaling or devices_per_node)
            loaded += _load_study(path, full_run, samples_per_step)
        else:
            table = curves(
                [path], scaling=scaling, devices_per_node=devices_per_node, full_run=full_run
            )
            loaded += [(curve, [], {}) for curve in table]
    return loaded


def refuse_same_source(paths: Sequence[Path]) -> None:
    """Refuse a folder or file that is named twice, also by different paths."""
    resolved = [path.resolve() for path in paths]
    for index, path in enumerate(paths):
        if resolved[index] in resolved[:index]:
            raise SpecError(f"{path} is named twice", hint="name different folders or tables")


def comparison_sides(path: Path) -> list[Side]:
    """Return each curve of a study folder, of the folder of a single run, or of a table, with the
    values of each run. Times are those of the measured runs.
    """
    if path.is_file():
        return [Side(source=str(path), curve=curve) for curve in curves([path])]
    if (path / "spec.json").exists() and not (path / "study.json").exists():
        study, record = _read_single_run(path)
        node_samples = node_samples_by_folder([record])
        (curve,) = scaling_curves(study, [record], node_samples)
        watched = (
            *_node_doubts([record]),
            *_watch_doubts([record]),
            *_sample_count_doubts([record]),
        )
        curve = with_doubts(replace(curve, warnings=(*watched, *curve.warnings)), [record])
        return [side_of_study(str(path), study, curve, [record], node_samples)]
    study = read_study(path)
    return [
        side_of_study(str(path), study, curve, records, node_samples)
        for curve, records, node_samples in _load_study(path, "as measured")
    ]


def _read_single_run(folder: Path) -> tuple[StudySpec, RunRecord]:
    """Return the record of a run's folder, and a study that has this run only."""
    try:
        spec = RunSpec.from_dict(read_json(folder / "spec.json"))
        run = {key: value for key, value in spec.to_dict().items() if value is not None}
        del run["repeat"], run["launcher"]
        study = StudySpec.from_dict({"name": folder.name, "run": run})
    except SpecError as error:
        raise RecordError(f"{folder / 'spec.json'} is damaged: {error}") from error
    if not finished(folder):
        raise RecordError(
            f"the run in {folder} has not finished", hint="`scalewise run` repeats it"
        )
    return study, load_run(folder, spec)


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
        for curve, records in curves_with_records(folder, "as measured"):
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
    study: StudySpec, folder: Path, samples_per_step: int | None = None
) -> tuple[list[RunRecord], dict[RunSpec, RecordError]]:
    """Return the records of finished runs, and the errors of runs that cannot be read."""
    records: list[RunRecord] = []
    problems: dict[RunSpec, RecordError] = {}
    for run in study.runs():
        try:
            if finished(folder / run.id):
                spec = run
                if samples_per_step and run.program:
                    spec = replace(run, samples_per_step=samples_per_step)
                records.append(load_run(folder / run.id, spec))
            elif problem := outcome_problem(folder / run.id):
                problems[run] = problem
        except NewerSchema:  # An upgrade of scalewise is needed: leaving the run out would hide it.
            raise
        except RecordError as error:
            problems[run] = error
    return records, problems


def _study_doubts(
    study: StudySpec,
    folder: Path,
    records: Sequence[RunRecord],
    problems: Mapping[RunSpec, RecordError],
) -> list[Doubt]:
    """Return the doubts that all curves of a study share: missing runs, idle devices, defects."""
    doubts = [
        Doubt("left out", {"problem": str(problem), "hint": problem.hint}, error=UNKNOWN_ERROR)
        for problem in problems.values()
    ]
    doubts += _node_doubts(records)
    shares = allocation_shares(folder)
    total, idle = sum(share.bought for share in shares), sum(share.idle for share in shares)
    if idle:
        devices = max(share.allocation_devices for share in shares)
        figures = {"allocation": devices, "idle": idle, "total": total}
        doubts.append(Doubt("idle devices", figures))
    runs = study.runs()
    # By folder: the spec of a record may have other samples per step than that of its run.
    folders = {*(run.id for run in problems), *(record.folder.name for record in records)}
    unfinished = [run for run in runs if run.id not in folders]  # Neither readable nor damaged.
    if records and unfinished:
        doubts.append(Doubt("not finished", {"unfinished": len(unfinished), "runs": len(runs)}))
    failures = ((run, failure(folder / run.id)) for run in unfinished if run.program)
    return doubts + [
        Doubt("failed run", {"topology": str(run.topology), "cause": cause})
        for run, cause in failures
        if cause
    ]


def _node_doubts(records: Sequence[RunRecord]) -> list[Doubt]:
    """Return a doubt for each run of which the samples of machines cannot be read."""
    problems = filter(None, (record.values.get(NODE_PROBLEM) for record in records))
    return [
        Doubt("left out", {"problem": f"energy and load: {problem}", "hint": problem.hint})
        for problem in problems
    ]


def _read_certificates(folder: Path) -> tuple[list[Certificate], list[Doubt]]:
    """Return the certificates of a study, and a doubt if they cannot be read."""
    try:
        return study_certificates(folder), []
    except NewerSchema:
        raise
    except RecordError as problem:
        figures = {"problem": str(problem), "hint": problem.hint}
        return [], [Doubt("left out", figures, error=UNKNOWN_ERROR)]


def _certificate_doubts(certificates: Sequence[Certificate]) -> list[Doubt]:
    """Return a doubt for each run that does not learn what one device learns, or may not."""
    kinds: dict[str, DoubtKind] = {"differs": "training differs", "cannot tell": "not certified"}
    return [
        Doubt(kinds[item.verdict], {"certificate": item}, item.devices)
        for item in certificates
        if item.verdict in kinds
    ]


def _watch_doubts(records: Sequence[RunRecord]) -> list[Doubt]:
    """Return doubts about runs that were not watched or traced to their end."""
    doubts: dict[tuple[DoubtKind, int], Doubt] = {}  # One of each kind and point.
    kinds: tuple[tuple[str, DoubtKind, float], ...] = (
        ("unwatched", "watching stopped", UNKNOWN_ERROR),
        ("untraced", "no trace", 0.0),
    )
    for note, kind, error in kinds:
        for record in records:
            reasons = (getattr(rank.notes, note) for rank in record.ranks)
            if reason := next(filter(None, reasons), None):
                topology = record.spec.topology
                figures = {"topology": str(topology), "reason": reason}
                doubts[kind, topology.world] = Doubt(kind, figures, topology.world, error)
    return list(doubts.values())


def _sample_count_doubts(records: Sequence[RunRecord]) -> list[Doubt]:
    """Return doubts where samples or steps of a user's program were inferred and may be wrong."""
    inferred = [record for record in records if not record.spec.samples_per_step]
    doubts: dict[tuple[DoubtKind, int | None], Doubt] = {}  # One of each kind and point.
    for record in inferred:
        facts, topology = _rank_facts(record), record.spec.topology
        if batch_sharing.unclear(facts):
            kind: DoubtKind = "samples unclear"
        elif any(part_count > 1 for _, part_count in batch_sharing.parts(facts)):
            kind = "shared samples"
        else:
            continue
        error = UNKNOWN_ERROR if kind == "samples unclear" else 0.0
        doubt = Doubt(kind, {"topology": str(topology)}, topology.world, error)
        doubts[kind, topology.world] = doubt
    if any(_may_count_time(record) for record in inferred):
        doubts["sequence first", None] = Doubt("sequence first", error=UNKNOWN_ERROR)
    made = [_rank_facts(record)[0].rows_of_one for record in inferred]
    if any(rows != 1 for rows in made):
        figures = {"rows": max(made)}
        doubts["rows of one", None] = Doubt("rows of one", figures, error=UNKNOWN_ERROR)
    if any(_rank_facts(record)[0].adds_calls for record in inferred):
        doubts["calls added", None] = Doubt("calls added", error=UNKNOWN_ERROR)
    if any(_rank_facts(record)[0].rows_unclear for record in inferred):
        doubts["rows unclear", None] = Doubt("rows unclear", error=UNKNOWN_ERROR)
    if any(_rank_facts(record)[0].manual_updates for record in records):
        doubts["manual updates", None] = Doubt("manual updates")
    return list(doubts.values())


def _may_count_time(record: RunRecord) -> bool:
    """Return whether the counted rows of a batch may be its steps in time: the model takes the
    sequence first, and no sampler says how many samples a batch has.
    """
    notes = record.ranks[0].notes
    has_sampler = notes.loader is not None and notes.loader.batch is not None
    return notes.facts.sequence_first and not has_sampler


def _rank_facts(record: RunRecord) -> list[ProgramFacts]:
    return [rank.notes.facts for rank in record.ranks]
