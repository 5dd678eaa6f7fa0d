"""Running checksums of the lines of rank and node files: a line that is missing, doubled, moved or
changed does not fit the line before it.

    {"attempt":1,"run":"7f1e7f5adabe",…,"sum":"1a2b3c4d"}

``sum`` is the CRC-32 of the lines of this attempt so far, each without its own ``sum``. It begins
with the file's name and the attempt, so that a line fits no other file.
"""

import json
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

from scalewise.errors import NotReadable, RecordError
from scalewise.files import MEBIBYTE, open_regular, read_file

MAX_FILE_BYTES, MAX_LINE_BYTES = 2048 * MEBIBYTE, 16 * MEBIBYTE
_KEY = b',"sum":"'
_LENGTH = len(_KEY) + 8 + len(b'"}')
_FIRST_LOOK, _SECOND_LOOK = 1 << 16, 64 * MEBIBYTE
"""Bytes of the end of a file in which the last line of an attempt is looked for."""


def first_sum(path: Path, attempt: int) -> int:
    """Return the sum before the first line of an attempt."""
    return crc32(f"{path.name} {attempt}".encode())


def next_sum(line: bytes, before: int) -> int:
    """Return the sum after a line, which has none of its own yet."""
    return crc32(line, before)


def with_sum(line: bytes, total: int) -> bytes:
    """Return a line with its sum as the last key."""
    return b'%b%b%08x"}' % (line[:-1], _KEY, total)


def split_sum(line: bytes) -> tuple[bytes, int | None]:
    """Return a line without its sum, and the sum; None if it has none.

    >>> split_sum(with_sum(b'{"attempt":1}', 7))
    (b'{"attempt":1}', 7)
    """
    if line[-_LENGTH : len(_KEY) - _LENGTH] != _KEY or line[-2:] != b'"}':
        return line, None
    try:
        return line[:-_LENGTH] + b"}", int(line[-10:-2], 16)
    except ValueError:
        return line, None


def last_sum(path: Path, attempt: int) -> int | None:
    """Return the sum after the last line of an attempt, ``first_sum`` if it has no line, and None
    if its lines have no sums: those of earlier versions of scalewise.
    """
    for length in (_FIRST_LOOK, _SECOND_LOOK):
        with open_regular(path) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - length))
            lines = file.read(length).split(b"\n")[:-1]  # The last line may be cut off.
        for line in reversed(lines):
            if line.startswith(b'{"attempt":') and line.endswith(b"}"):
                of_attempt = line.startswith(b'{"attempt":%d,' % attempt)
                return split_sum(line)[1] if of_attempt else first_sum(path, attempt)
        if size <= length:
            break
    return first_sum(path, attempt)


REPEAT = "delete the run's folder and run the study again"


def read_attempt(
    path: Path, attempt: int, runs: Collection[str] = (), stored_sum: str | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the lines of an attempt with their numbers; refuse a file that was damaged.

    ``runs`` are the names that the run may have. ``stored_sum`` is the sum after the last line that
    was there when the attempt was closed. A cut-off line is passed over at the end of the attempt.
    """
    try:
        content = read_file(path, MAX_FILE_BYTES, within=path.parent.parent)
    except NotReadable:
        raise
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}", hint=REPEAT) from error
    sums, cut_off = LineSums(path, attempt), 0
    for number, text in enumerate(content.split(b"\n"), 1):
        if not text:
            continue
        if len(text) > MAX_LINE_BYTES:
            raise sums.refusal(number, f"is longer than {MAX_LINE_BYTES // MEBIBYTE} MiB")
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            line = None
        if not isinstance(line, dict):
            cut_off = cut_off or number
        elif line.get("attempt") == attempt:
            if cut_off and sums.has_sums:
                raise sums.refusal(cut_off, "is not JSON")
            cut_off = 0
            if runs and (run := line.get("run", "")) and run not in runs:
                raise sums.refusal(number, f"is of another run, {str(run)[:80]!r}")
            line.pop("run", None)
            line.pop("sum", None)
            yield number, line  # Checked after it: its reader refuses a newer schema first.
            sums.add(number, text)
        else:
            cut_off = 0  # This line's attempt began after the cut-off line.
    if stored_sum is not None and not sums.has(stored_sum):
        raise RecordError(f"{path} is cut off: it was longer when its run ended", hint=REPEAT)


class LineSums:
    """Compares the lines of one attempt with their sums, in order."""

    def __init__(self, path: Path, attempt: int) -> None:
        self.path = path
        self.has_sums: bool | None = None
        """Whether the lines have sums; None before the first line."""
        self.seen: set[int] = set()
        self._total = first_sum(path, attempt)

    def add(self, number: int, line: bytes) -> None:
        """Refuse line ``number`` of the file if it does not follow the one before it."""
        bare, stated = split_sum(line)
        if self.has_sums is None:
            self.has_sums = stated is not None
        if self.has_sums != (stated is not None):
            problem = "has no checksum" if stated is None else "has a checksum, those before none"
            raise self.refusal(number, problem)
        if stated is None:
            return
        self._total = next_sum(bare, self._total)
        if stated != self._total:
            fault = "was changed, or does not follow the line before it"
            raise self.refusal(number, "is there twice" if stated in self.seen else fault)
        self.seen.add(stated)

    def has(self, stored_sum: str) -> bool:
        """Return whether a line has this sum."""
        return any(f"{total:08x}" == stored_sum for total in self.seen)

    def refusal(self, number: int, problem: str) -> RecordError:
        """Return the error for a line."""
        return RecordError(f"{self.path} is damaged: line {number} {problem}", hint=REPEAT)
