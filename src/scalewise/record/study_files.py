"""Read the small files of a study's folder: the study, and the state of each run."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scalewise.errors import NewerSchema, RecordError, SpecError
from scalewise.record.json_files import read_json
from scalewise.record.schema import Failure, Outcome, from_json
from scalewise.spec import RUN_KEYS, STUDY_KEYS, StudySpec


def read_study(folder: Path) -> StudySpec:
    """Return the study that is stored in this folder."""
    if not (folder / "study.json").exists():
        what = "does not exist"
        if folder.exists():
            what = "is not a study's folder: it has no study.json"
        hint = "give the folder that `scalewise run` printed"
        if folder.is_dir():
            hint += "; `scalewise import` makes a table of logs"
        if folder.suffix in (".csv", ".tsv", ".txt", ".md"):
            hint = "check the name of the table"
        raise RecordError(f"{folder} {what}", hint=hint)
    stored = _only_known(read_json(folder / "study.json"), STUDY_KEYS)
    if isinstance(run := stored.get("run"), dict):
        stored["run"] = _only_known(run, RUN_KEYS)
    try:
        return StudySpec.from_dict(stored)
    except SpecError as bad:
        raise RecordError(
            f"{folder / 'study.json'} is damaged: {bad}", hint="run the study again"
        ) from bad


def _only_known(stored: dict[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """Return only the known keys, because a later minor version may have added keys."""
    return {key: value for key, value in stored.items() if key in keys}


_OUTCOME_KEYS = ("attempt", "started", "ended", "ranks")


def finished(folder: Path) -> bool:
    """Return whether the run in this folder succeeded; False if its outcome cannot be read."""
    try:
        outcome = read_json(folder / "outcome.json")
    except NewerSchema:
        raise
    except RecordError:
        return False
    return outcome.keys() >= set(_OUTCOME_KEYS)


def outcome_problem(folder: Path) -> RecordError | None:
    """Return why the outcome of a run cannot be read; None if it can, or if there is none."""
    path = folder / "outcome.json"
    hint = "`scalewise run` closes the run anew"
    if not os.path.lexists(path):
        return None
    try:
        keys = read_json(path).keys()
    except NewerSchema:
        raise
    except RecordError as error:
        return RecordError(str(error), hint=hint)
    missing = [key for key in _OUTCOME_KEYS if key not in keys]
    if missing:
        return RecordError(f"{path} is damaged: it has no {missing[0]}", hint=hint)
    return None


def failure(folder: Path) -> str:
    """Return why the last failed attempt failed, or an empty string if none failed."""
    last = last_failure(folder)
    return last.cause if last else ""


def last_failure(folder: Path) -> Failure | None:
    """Return the failure of the last attempt that failed; None if none failed."""
    names = (path for path in folder.glob("failure-*.json") if path.stem[8:].isdecimal())
    failures = sorted(names, key=lambda path: int(path.stem[8:]))
    return from_json(Failure, {"cause": "unknown", **read_json(failures[-1])}) if failures else None


def outcome(folder: Path) -> Outcome:
    """Return the outcome of the run in this folder, which has ``finished``."""
    return from_json(Outcome, read_json(folder / "outcome.json"))
