"""Write a run folder: one append-only file per rank; all other files are written atomically."""

import errno
import json
import math
import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from scalewise.errors import RecordError
from scalewise.files import open_regular, special_kind
from scalewise.record.line_sums import first_sum, last_sum, next_sum, with_sum
from scalewise.record.schema import DiskTrouble

_encode = json.JSONEncoder(separators=(",", ":")).encode

SCHEMA = 1
"""The major version of the run folder's format; readers refuse newer versions."""
DISK_PATIENCE_SECONDS = 60.0
"""So long a rank keeps the lines that its disk refuses, unless SCALEWISE_DISK_PATIENCE says more
or less.
"""
RETRY_SECONDS = 0.5
"""Time between two tries to write while nothing else is left to do."""
BLOCKED_SECONDS = 1.0
"""A write that takes longer is noted."""
MAX_KEPT_BYTES = 16 << 20
STALE_ERRORS = (errno.ESTALE, errno.ENOTCONN, errno.EIO)
"""After these errors the file is opened again: its handle may be of a server that restarted."""


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


def refuse_special(path: Path) -> None:
    """Refuse to put a file in place of a device, a named pipe or a socket, or of no name at all."""
    if not path.name:
        raise RecordError(f"cannot write {path}: it names a folder", hint="give the name of a file")
    if reason := special_kind(path):
        raise RecordError(f"cannot write {path}: {reason}", hint="give the name of a new file")


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write a versioned JSON file atomically, with a checksum of its values."""
    read_back = json.loads(json.dumps({**values, "schema": SCHEMA}))  # Such as lists for tuples.
    text = json.dumps({**values, "checksum": json_checksum(read_back)}, indent=1)
    # The schema comes first, on a line of its own.
    write_text(path, f'{{"schema": {SCHEMA},\n {text[1:].lstrip()}\n')


def json_checksum(values: Mapping[str, Any]) -> str:
    """Return a checksum of JSON values that does not depend on how they are written."""
    canonical = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return blake2b(canonical.encode(), digest_size=8).hexdigest()


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically; names of files in it may be any bytes."""
    write_bytes(path, text.encode("utf-8", "surrogateescape"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically: a reader gets the complete new file or the old file."""
    refuse_special(path)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(content)
        os.replace(draft, path)
    except OSError as error:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise cannot_write(path, error) from error


class LineFile:
    """An append-only file of JSON lines, for one attempt.

    What the disk refuses is kept in memory, and written in order once the disk takes it again; a
    line of which only a part was written is completed then. ``RecordError`` if the disk refuses
    for more than ``SCALEWISE_DISK_PATIENCE`` seconds. A line ``disk`` says what happened.
    """

    def __init__(self, path: Path, attempt: int) -> None:
        self.path = path
        self.attempt = attempt
        self._run = path.parent.name
        self._sum: int | None = first_sum(path, attempt)  # None: earlier lines have no sums.
        self._kept = bytearray()  # What is not written yet.
        self._error: OSError | None = None  # Why the disk refuses; None if it does not.
        self._refused_since = 0.0  # By time.monotonic().
        self._trouble = DiskTrouble()
        self._has_news = False  # Whether ``_trouble`` has changed since it was written.
        self._patience = float(os.environ.get("SCALEWISE_DISK_PATIENCE", DISK_PATIENCE_SECONDS))
        try:
            cut_off = False  # Whether the last line, of an earlier attempt, is incomplete.
            if self.path.exists() and self.path.stat().st_size:
                with open_regular(self.path) as file:
                    file.seek(-1, os.SEEK_END)
                    cut_off = file.read(1) != b"\n"
                self._sum = last_sum(path, attempt)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK  # Never wait for a pipe.
            self._file = os.open(self.path, flags, 0o666)
        except OSError as error:
            raise cannot_write(self.path, error) from error
        if cut_off:
            self._write(b"\n")

    def line(self, values: Mapping[str, Any]) -> None:
        """Append a line."""
        if self._has_news:
            self._has_news = False
            self._write(self._encode({"disk": asdict(self._trouble)}))
        self._write(self._encode(values))

    def write_kept(self) -> None:
        """Write what the disk has refused so far; keep what it refuses again."""
        if not self._kept:
            return
        began = time.monotonic()
        try:
            if self._error and self._error.errno in STALE_ERRORS:
                self._reopen()
            while self._kept:
                count = os.write(self._file, self._kept)
                if not count:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                del self._kept[:count]
        except OSError as error:
            self._refuse(error, began)
        else:
            ended = time.monotonic()
            if self._error:
                seconds = round(self._trouble.refused + ended - self._refused_since, 1)
                self._add_trouble(error=self._error.strerror or str(self._error), refused=seconds)
                self._error = None
            elif ended - began > BLOCKED_SECONDS:
                self._add_trouble(blocked=round(self._trouble.blocked + ended - began, 1))

    def settle(self, seconds: float = math.inf) -> None:
        """Wait until everything is written: at most ``seconds``, and as the disk may refuse."""
        ends = time.monotonic() + seconds
        self.write_kept()
        while self._kept and time.monotonic() < ends:
            time.sleep(RETRY_SECONDS)
            self.write_kept()

    def close(self) -> None:
        """Write everything, and close the file."""
        try:
            self.settle()
        finally:
            os.close(self._file)

    def _encode(self, values: Mapping[str, Any]) -> bytes:
        """Return a line with its sum; call it in the order in which the lines are written."""
        line = _encode({"attempt": self.attempt, "run": self._run, **values}).encode()
        if self._sum is not None:
            self._sum = next_sum(line, self._sum)
            line = with_sum(line, self._sum)
        return line + b"\n"

    def _write(self, text: bytes) -> None:
        self._kept += text
        self.write_kept()

    def _add_trouble(self, **values: Any) -> None:
        self._trouble, self._has_news = replace(self._trouble, **values), True

    def _reopen(self) -> None:
        """Open the file again: a handle that became stale stays so."""
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        os.close(self._file)
        self._file = file

    def _refuse(self, error: OSError, began: float) -> None:
        """Keep what the disk refused; raise if it has refused for too long, or too much."""
        if not self._error:
            self._refused_since = began
            problem = cannot_write(self.path, error)
            with suppress(OSError):  # The log may lie on the same disk.
                sys.stderr.write(f"scalewise: {problem}; trying again for {self._patience:g} s\n")
        self._error = error
        is_over = time.monotonic() - self._refused_since > self._patience
        # EFBIG is a limit of this process: waiting does not help.
        if is_over or error.errno == errno.EFBIG or len(self._kept) > MAX_KEPT_BYTES:
            raise cannot_write(self.path, error) from error


class RankFile(LineFile):
    """One rank's file of JSON lines; a simulation is ``buffered``: ``close`` writes all lines."""

    def __init__(self, folder: Path, rank: int, attempt: int, *, buffered: bool = False) -> None:
        super().__init__(rank_file(folder, rank), attempt)
        self._buffer: list[bytes] | None = [] if buffered else None

    def line(self, values: Mapping[str, Any]) -> None:
        if self._buffer is None:
            super().line(values)
        else:
            self._buffer.append(self._encode(values))

    def close(self) -> None:
        """Write everything, and close the file."""
        try:
            self._write(b"".join(self._buffer or []))
        finally:
            super().close()
