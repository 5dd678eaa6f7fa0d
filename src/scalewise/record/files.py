"""Read the small files of a study's folder: its question, and where each run is."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scalewise.errors import RecordError
from scalewise.record.write import SCHEMA
from scalewise.spec import RUN_KEYS, STUDY_KEYS, RunSpec, StudySpec

REPEAT = "delete the run's folder and run the study again"


def read_json(path: Path) -> dict[str, Any]:
    """Return a versioned file's values."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as why:
        raise RecordError(f"{path} is missing", hint=REPEAT) from why
    except (OSError, UnicodeDecodeError) as why:
        raise RecordError(f"cannot read {path}: {why}") from why
    except ValueError as why:
        raise RecordError(f"{path} is damaged: {why}", hint=REPEAT) from why
    if not isinstance(values, dict):
        raise RecordError(f"{path} is damaged: not a JSON object")
    version = values.pop("schema", None)
    if not isinstance(version, int) or version > SCHEMA:
        raise RecordError(
            f"{path} has schema {version}, and this scalewise reads up to {SCHEMA}",
            hint="upgrade scalewise",
        )
    return values


def read_study(folder: Path) -> StudySpec:
    """Return the question that a study's folder answers."""
    if not (folder / "study.json").exists():
        what = "is not a study's folder" if folder.exists() else "does not exist"
        raise RecordError(
            f"{folder} {what}",
            hint="give the folder that `scalewise run` printed, or a CSV file",
        )
    stored = _known(read_json(folder / "study.json"), STUDY_KEYS)
    return StudySpec.from_dict({**stored, "run": _known(stored.get("run", {}), RUN_KEYS)})


def read_spec(folder: Path) -> RunSpec:
    """Return what was run in a run's folder."""
    return RunSpec.from_dict(_known(read_json(folder / "spec.json"), RUN_KEYS))


def _known(stored: dict[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """Leave out what a later minor version has added."""
    return {key: value for key, value in stored.items() if key in keys}


def finished(folder: Path) -> bool:
    """Say whether the run in this folder ended well, and its outcome can be read."""
    try:
        json.loads((folder / "outcome.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return True


def failure(folder: Path) -> str:
    """Return why the last attempt failed, or nothing."""
    found = sorted(folder.glob("failure-*.json"), key=lambda p: int(p.stem.partition("-")[2]))
    return str(read_json(found[-1]).get("cause", "unknown")) if found else ""
