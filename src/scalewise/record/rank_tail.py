"""Read the last lines that a rank wrote in an attempt: how far it came, and how it ended."""

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import Any, BinaryIO

from scalewise.files import open_regular
from scalewise.record.line_sums import MAX_LINE_BYTES, first_sum, next_sum, split_sum
from scalewise.record.schema import RankEnd, RankNotes, from_json
from scalewise.record.write import rank_file

MAX_ATTEMPT = 1_000_000
TAIL_BYTES = 1 << 16
"""How much of the end of a rank's file is read."""


@dataclass(frozen=True)
class RankTail:
    """The last lines of one rank in an attempt."""

    rank: int
    lines: tuple[Mapping[str, Any], ...]
    """Newest first; empty if the rank never began."""

    @property
    def last(self) -> Mapping[str, Any]:
        """The last line; empty if there is none."""
        return self.lines[0] if self.lines else {}

    @cached_property
    def notes(self) -> RankNotes:
        """The newest value of everything that the rank noted in these lines."""
        return RankNotes.from_lines(self.lines)

    @property
    def launched(self) -> float | None:
        """When this attempt was launched, from its first line or its launch span."""
        for line in reversed(self.lines):
            if "launched" in line:
                return float(line["launched"])
            if line.get("span") == "launch":
                return float(line["start"])
        return None

    @property
    def latest(self) -> float | None:
        """The last time that this rank recorded, and what it did since; None if there is none."""
        stall = self.notes.stall if "stalled" in self.last else None
        seconds = stall.seconds if stall else 0.0
        for line in self.lines:
            for key in ("ended", "at", "end"):
                if line.get(key) is not None:
                    return float(line[key]) + seconds
            seconds += line["seconds"] if "steps" in line else 0.0
        return None

    @property
    def ended(self) -> bool:
        """Whether the rank ended without an error."""
        return "ended" in self.last

    @cached_property
    def end(self) -> RankEnd:
        """The last line. Use it only if the rank ended, or stopped early with a checkpoint."""
        return from_json(RankEnd, self.last)

    @property
    def failure_kind(self) -> str | None:
        """``error``, ``stalled``, ``terminated`` or ``orphaned``; None if no failure was noted."""
        return self.last.get("kind") if "failed" in self.last else None

    @property
    def position(self) -> str:
        """How far the rank came, as in "after step 3" or "in build, after 0 steps"."""
        if (stalled := self.last.get("stalled")) and stalled["span"]:
            return f"in {stalled['span']}, after {stalled['steps']} steps"
        if self.notes.steps:
            return f"after step {self.notes.steps[1]}"
        return f"after {self.notes.span}" if self.notes.span else "at its start"


def read_tail(folder: Path, rank: int, attempt: int) -> RankTail:
    """Return the last lines that ``rank`` wrote in this attempt, and those before its steps."""
    lines: list[Mapping[str, Any]] = []
    for line in _newest_first(folder, rank):
        if line.get("attempt") != attempt:
            break
        lines.append(line)
    else:
        path = rank_file(folder, rank)
        if path.exists() and path.stat().st_size > TAIL_BYTES:
            lines += reversed(_lines_before_steps(path, attempt))
    return RankTail(rank, tuple(lines))


def _lines_before_steps(path: Path, attempt: int) -> list[dict[str, Any]]:
    """Return an attempt's lines up to its first step, which lie before the tail of a long file.

    They have the rank's host and process id, its planned work, and the step it resumed from.
    """
    prefix = f'{{"attempt":{attempt},'.encode()
    with open_regular(path) as file:
        texts = dropwhile(lambda text: not text.startswith(prefix), _short_lines(file))
        return list(takewhile(lambda line: "steps" not in line, parse_lines(texts)))


def read_last_line(folder: Path, rank: int, attempt: int) -> Mapping[str, Any]:
    """Return the last line of ``read_tail``, for a fraction of its cost; empty if there is none."""
    line = next(_newest_first(folder, rank), {})
    return line if line.get("attempt") == attempt else {}


def newest_attempt(folder: Path, at_least: int) -> int:
    """Return the last attempt in rank 0's file, which Slurm may have started by a requeue."""
    newest = next((line["attempt"] for line in _newest_first(folder, 0)), at_least)
    return max(at_least, newest)


def first_launch(folder: Path, rank: int, first_attempt: int) -> float:
    """Return when the first attempt of a job was launched; infinity if that is not recorded."""
    lines = read_lines(rank_file(folder, rank), containing=b'"launched":')
    times = (line["launched"] for line in lines if line.get("attempt", 0) >= first_attempt)
    return float(next(times, math.inf))


def read_lines(path: Path, containing: bytes = b"") -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a file's lines; none if the file cannot be read."""
    try:
        with open_regular(path, within=path.parent.parent) as file:
            yield from parse_lines(text for text in _short_lines(file) if containing in text)
    except OSError:
        return


def parse_lines(texts: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects in these lines; skip a line that was cut off."""
    for text in texts:
        with suppress(ValueError, RecursionError):
            line = json.loads(text)
            if isinstance(line, dict):
                if "attempt" in line:  # Its run and sum are checked where finished runs are read.
                    line.pop("run", None)
                    line.pop("sum", None)
                yield line


def _newest_first(folder: Path, rank: int) -> Iterator[Mapping[str, Any]]:
    """Yield the last lines of a rank's file, the newest first."""
    path = rank_file(folder, rank)
    try:
        with open_regular(path, within=folder.parent) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            tail = file.read(2 * TAIL_BYTES).splitlines()
    except FileNotFoundError:
        return
    # The line before the first one is unknown, if there is one.
    before = [b"" if size <= TAIL_BYTES else None, *tail]
    for text, previous in zip(reversed(tail), reversed(before[:-1])):
        for line in parse_lines([text]):
            attempt = line.get("attempt")
            if type(attempt) is not int or not 0 < attempt <= MAX_ATTEMPT:
                continue
            if previous is not None and not _may_follow(path, text, previous, attempt):
                continue  # Its attempt was changed: it must not count as the newest one.
            yield line


def _may_follow(path: Path, text: bytes, previous: bytes, attempt: int) -> bool:
    """Return whether a line may follow another: the first of an attempt must fit its start."""
    bare, stated = split_sum(text)
    if stated is None or previous.startswith(b'{"attempt":%d,' % attempt):
        return True
    is_torn = bool(previous) and not previous.endswith(b"}")
    return is_torn or stated == next_sum(bare, first_sum(path, attempt))


def _short_lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file, up to one that is too long to be read."""
    while text := file.readline(MAX_LINE_BYTES):
        if len(text) == MAX_LINE_BYTES:
            return
        yield text
