"""Read the JSON files of a run folder: versioned, and unchanged since they were written."""

import json
from pathlib import Path
from typing import Any

from scalewise.errors import NewerSchema, NotReadable, RecordError
from scalewise.files import JSON_LIMIT, read_file
from scalewise.record.line_sums import REPEAT
from scalewise.record.write import SCHEMA, json_checksum


def newer_schema(path: Path, version: int) -> NewerSchema:
    """Return the error for a file with a newer major version of its schema."""
    return NewerSchema(
        f"{path} has schema {version}, and this scalewise reads up to {SCHEMA}",
        hint="upgrade scalewise",
    )


def read_json(path: Path, limit: int = JSON_LIMIT) -> dict[str, Any]:
    """Return the values of a JSON file; raise if its schema version is missing or too new, or if
    its checksum does not fit. Files of earlier versions of scalewise have no checksum.
    """
    try:
        values = parse_json(read_file(path, limit, within=path.parent.parent))
    except FileNotFoundError as error:
        raise RecordError(f"{path} is missing", hint=REPEAT) from error
    except NotReadable:
        raise
    except OSError as error:
        raise RecordError(
            f"cannot read {path}: {error.strerror}", hint="check who may read it"
        ) from error
    except ValueError as error:
        raise RecordError(f"{path} is damaged: {error}", hint=REPEAT) from error
    version = values.get("schema") if isinstance(values, dict) else None
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise RecordError(f"{path} is damaged: it has no schema version", hint=REPEAT)
    if version > SCHEMA:
        raise newer_schema(path, version)
    stored = values.pop("checksum", None)
    if stored is not None and stored != json_checksum(values):
        raise RecordError(f"{path} was changed after it was written", hint=REPEAT)
    del values["schema"]
    return dict(values)


def parse_json(content: bytes) -> Any:
    """Return the value of a JSON text; whatever is wrong with it is a ValueError."""
    try:
        return json.loads(content)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
