"""Write a run folder: one append-only file per rank; all other files are written atomically."""

import errno
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from scalewise.errors import RecordError

_encode = json.JSONEncoder(separators=(",", ":")).encode

SCHEMA = 1
"""The major version of the run folder's format; readers refuse newer versions."""


def rank_file(folder: Path, rank: int) -> Path:
    """Return the path of the file to which ``rank`` appends its lines."""
    return folder / f"rank-{rank:05d}.jsonl"


def trace_file(folder: Path, rank: int) -> Path:
    """Return the path of the framework's own trace of ``rank``."""
    return folder / f"trace-{rank:05d}.json.gz"


def laps_file(folder: Path, rank: int) -> Path:
    """Return the path of the file with our laps (timed phases) of the traced steps."""
    return folder / f"trace-{rank:05d}.marks.json"


def operators_file(folder: Path, rank: int) -> Path:
    """Return the path of the file with the slowest operators of the traced steps."""
    return folder / f"operators-{rank:05d}.json"


def cannot_write(path: Path, error: OSError) -> RecordError:
    """Return the error for a file that cannot be written."""
    hint = "choose another folder"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        hint = "free some space; what was recorded so far stays readable"
    return RecordError(f"cannot write {path}: {error.strerror or error}", hint=hint)


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write a versioned JSON file atomically."""
    text = json.dumps(values, indent=1)  # The schema comes first, on a line of its own.
    body = text[1:].lstrip() if values else "}"
    write_text(path, f'{{"schema": {SCHEMA}{"," if values else ""}\n {body}\n')


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically: a reader gets the complete new file or the old file."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(content)
        os.replace(draft, path)
    except OSError as error:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise cannot_write(path, error) from error


class RankFile:
    """One rank's file of JSON lines; a simulation is ``buffered``: ``close`` writes all lines."""

    def __init__(self, folder: Path, rank: int, attempt: int, *, buffered: bool = False) -> None:
        self.path = rank_file(folder, rank)
        self.attempt = attempt
        self._buffer: list[bytes] | None = [] if buffered else None
        try:
            cut_off = False  # Whether the last line, of an earlier attempt, is incomplete.
            if self.path.exists() and self.path.stat().st_size:
                with self.path.open("rb") as file:
                    file.seek(-1, os.SEEK_END)
                    cut_off = file.read(1) != b"\n"
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
            self._file = os.open(self.path, flags, 0o666)
        except OSError as error:
            raise cannot_write(self.path, error) from error
        if cut_off:
            self._write(b"\n")

    def line(self, values: Mapping[str, Any]) -> None:
        text = _encode({"attempt": self.attempt, **values}).encode() + b"\n"
        if self._buffer is None:
            self._write(text)
        else:
            self._buffer.append(text)

    def close(self) -> None:
        """Write the buffered lines, and close the file."""
        self._write(b"".join(self._buffer or []))
        os.close(self._file)

    def _write(self, text: bytes) -> None:
        try:
            while text:
                text = text[os.write(self._file, text) :]
        except OSError as error:
            raise cannot_write(self.path, error) from error
