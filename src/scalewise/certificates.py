"""Load certificates: compare the short runs that a study's folder holds."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from scalewise.analysis.certify import Certificate, SketchedRun, certify, sketched_run
from scalewise.errors import RecordError, SpecError
from scalewise.record.certificate_files import (
    PlannedComparison,
    certificate_folder,
    read_comparisons,
)
from scalewise.record.json_files import read_json
from scalewise.record.read import read_run
from scalewise.record.study_files import finished
from scalewise.spec import RunSpec


def certificates(folders: Sequence[Path]) -> list[Certificate]:
    """Return the certificates of study folders. With several folders, all runs of the later ones
    are compared with the first reference of the first folder.
    """
    homes = [_required_folder(folder) for folder in folders]
    found = _compare(homes[0], read_comparisons(homes[0]))
    if len(homes) == 1:
        return found
    first = read_comparisons(homes[0])[0]
    base, backwards = (_load(homes[0], run) for run in (first.reference, first.reversed_reference))
    for home in homes[1:]:
        planned = read_comparisons(home)
        ids = dict.fromkeys(run for item in planned for run in (item.reference, item.candidate))
        where = {item.candidate: item.where for item in planned}
        for run in ids:
            candidate = _load(home, run, {"folder": home.parent.name, **where.get(run, {})})
            found.append(_certificate(base, backwards, candidate))
    return found


def study_certificates(folder: Path) -> list[Certificate]:
    """Return the certificates of a study's folder; empty if it has none."""
    home = certificate_folder(folder)
    return _compare(home, read_comparisons(home)) if home else []


def _required_folder(folder: Path) -> Path:
    home = certificate_folder(folder)
    if home is None:
        hint = "make one: scalewise certify study.toml, or scalewise certify --on 1,2 -- train.py"
        raise RecordError(f"{folder} has no certificate", hint=hint)
    return home


def _compare(home: Path, planned: Sequence[PlannedComparison]) -> list[Certificate]:
    runs: dict[str, SketchedRun] = {}

    def load(run: str, where: Mapping[str, object] | None = None) -> SketchedRun:
        if run not in runs or where is not None:
            runs[run] = _load(home, run, where)
        return runs[run]

    return [
        _certificate(
            load(item.reference), load(item.reversed_reference), load(item.candidate, item.where)
        )
        for item in planned
    ]


def _load(home: Path, run: str, where: Mapping[str, object] | None = None) -> SketchedRun:
    """Return one short run; without sketches if it has not finished."""
    folder = home / run
    if not finished(folder):
        return _unfinished(folder, where)
    try:
        spec = RunSpec.from_dict(read_json(folder / "spec.json"))
    except SpecError as error:
        raise RecordError(f"{folder / 'spec.json'} is damaged: {error}") from error
    return sketched_run(read_run(folder, spec), where)


def _unfinished(folder: Path, where: Mapping[str, object] | None) -> SketchedRun:
    label, devices = folder.name, 0
    if (folder / "spec.json").exists():
        spec = RunSpec.from_dict(read_json(folder / "spec.json"))
        label, devices = spec.label.partition(", repeat")[0], spec.topology.world
    reason = "the run has not finished"
    return SketchedRun(
        label=label, devices=devices, layers={}, replicas=devices, unsupported=reason,
        where=dict(where or {}),
    )  # fmt: skip


def _certificate(
    reference: SketchedRun, reversed_reference: SketchedRun, candidate: SketchedRun
) -> Certificate:
    return certify(reference, reversed_reference, candidate)
