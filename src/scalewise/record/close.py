"""Close an attempt: ``outcome.json`` when every rank ended well, else its cause.

The ranks' own last lines are the evidence, so closing needs no memory of how
the run was started and can be done late, by another process, or twice.
"""

import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalewise.record.log import (
    last_line,
    own_lines,
    ranks_by_pid,
    signal_name,
    usual_reason,
)
from scalewise.record.write import rank_file, write_json

TAIL = 1 << 16
LAST_STANDARD_SIGNAL = 31
"""Signals beyond it are real-time ones, which no system sends by itself."""


@dataclass(frozen=True, slots=True)
class LastWord:
    """What one rank said last in an attempt."""

    rank: int
    lines: tuple[Mapping[str, Any], ...]
    """The last lines of this attempt, newest first; none if it never began."""

    @property
    def last(self) -> Mapping[str, Any]:
        """The very last line, or an empty one."""
        return self.lines[0] if self.lines else {}

    def find(self, key: str) -> Any:
        """Return the newest value of ``key``, or nothing."""
        return next((line[key] for line in self.lines if key in line), None)

    @property
    def launched(self) -> float | None:
        """When this attempt was launched: its first line says so, or its first span."""
        for line in reversed(self.lines):
            if "launched" in line:
                return float(line["launched"])
            if line.get("span") == "launch":
                return float(line["start"])
        return None

    @property
    def ended(self) -> bool:
        """Whether the rank ended well."""
        return "ended" in self.last

    @property
    def place(self) -> str:
        """Where the rank was: its step, or the part of its life."""
        if (stalled := self.last.get("stalled")) and stalled["span"]:
            return f"in {stalled['span']}, after {stalled['steps']} steps"
        if steps := self.find("steps"):
            return f"after step {steps[1]}"
        span = self.find("span")
        return f"after {span}" if span else "at its start"


def close(  # noqa: PLR0913 - all that a launcher may know
    folder: Path,
    *,
    attempt: int,
    world: int,
    ended: float | None,
    why: str = "",
    killed: Mapping[int, str] | None = None,
    exits: Mapping[int, int] | None = None,
    launched: float | None = None,
) -> str:
    """Close the attempt; return an empty string if it ended well, else the cause.

    ``ended`` is when the last process was seen to end; nothing, if nobody saw it,
    means the last rank's own word. What the launcher knows
    of a failure: ``why`` it ended the run, by which signal processes were
    ``killed``, first seen first, which ``exits`` were not 0, and when it was
    ``launched``, where no rank has a word of that.
    """
    words = [last_word(folder, rank, attempt) for rank in range(world)]
    fault = _rivalry(folder, attempt, words) or _guest_fault(
        words, world, exits or {}, killed or {}
    )
    lost = {rank for word in words if word.ended for rank in word.last.get("lost", ())}
    if all(word.ended or word.rank in lost for word in words) and not fault:
        ends = [word.last for word in words if word.ended]
        unseen = ended is None or any(end.get("simulated") for end in ends)
        write_json(
            folder / "outcome.json",
            {
                "attempt": attempt,
                "started": min(end["launched"] for end in ends),
                "ended": max(end["ended"] for end in ends) if unseen else ended,
                "ranks": world,
                **({"lost": sorted(lost)} if lost else {}),
            },
        )
        return ""
    fault = fault or _told_to_go(words)
    early = None if why or fault else _killed_early(folder, words, killed or {})
    guilty, cause = early or _cause(words, why or fault, killed or {}, exits or {})
    if not why and not fault and (guilty is None or not guilty.find("failed")) and not killed:
        cause += f"; the log ends: {last_line(folder)}"
    elif fault and exits and not why and (lines := own_lines(folder)):
        cause += f"; the log ends: {lines[-1].strip()}"
    write_json(
        folder / f"failure-{attempt}.json",
        {
            "attempt": attempt,
            "cause": cause,
            "rank": guilty.rank if guilty else None,
            "host": guilty.find("host") if guilty else None,
            "closed": time.time(),
            "started": min((at for word in words if (at := word.launched)), default=launched),
            "ended": _last_sign(folder, world) if ended is None else ended,
        },
    )
    return cause


def _last_sign(folder: Path, world: int) -> float | None:
    """Return when a run was last heard of: what it wrote last tells when it ended, if nobody saw.

    Nothing where it never wrote anything.
    """
    paths = [folder / "log.txt", *(rank_file(folder, rank) for rank in range(world))]
    return max((path.stat().st_mtime for path in paths if path.exists()), default=None)


def closed(folder: Path, attempt: int) -> bool:
    """Say whether this attempt was closed, well or not; one that a later one followed well is."""
    if (folder / f"failure-{attempt}.json").exists():
        return True
    try:
        outcome = json.loads((folder / "outcome.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    last = outcome.get("attempt") if isinstance(outcome, dict) else None
    return isinstance(last, int) and last >= attempt


def last_word(folder: Path, rank: int, attempt: int) -> LastWord:
    """Return the last lines that ``rank`` wrote in this attempt."""
    lines: list[Mapping[str, Any]] = []
    for line in _from_the_end(folder, rank):
        if line.get("attempt") != attempt:
            break
        lines.append(line)
    else:
        path = rank_file(folder, rank)
        if path.exists() and path.stat().st_size > TAIL:
            lines += _header(path, attempt)
    return LastWord(rank, tuple(lines))


def _from_the_end(folder: Path, rank: int) -> Iterator[Mapping[str, Any]]:
    """Yield the last lines of a rank, newest first; those that were cut off are passed over."""
    try:
        with rank_file(folder, rank).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL))
            tail = file.read().splitlines()
    except FileNotFoundError:
        return
    for text in reversed(tail):
        with suppress(ValueError):
            line: Mapping[str, Any] = json.loads(text)
            yield line


def _header(path: Path, attempt: int) -> list[Mapping[str, Any]]:
    """Return the first line of this attempt in a file too long to be read for it."""
    begins = f'{{"attempt":{attempt},'.encode()
    with path.open("rb") as file:
        return [json.loads(next(line for line in file if line.startswith(begins)))]


def first_launch(folder: Path, rank: int, first: int) -> float:
    """Return when the first of a job's attempts was launched that a rank has a word of.

    A rank says so in its first line of each attempt; from ``first`` on they are the job's.
    """
    try:
        with rank_file(folder, rank).open("rb") as file:
            for text in file:
                if b'"launched":' not in text:
                    continue
                with suppress(ValueError):
                    line = json.loads(text)
                    if line.get("attempt", 0) >= first:
                        return float(line["launched"])
    except FileNotFoundError:
        pass
    return math.inf


def newest_attempt(folder: Path, least: int) -> int:
    """Return the last attempt that rank 0 has a word of; a job may start ranks by itself."""
    newest = next((line["attempt"] for line in _from_the_end(folder, 0)), least)
    return max(least, int(newest))


def rivals(folder: Path, attempt: int) -> Path:
    """Return where processes tell that another one trains as their rank already."""
    return folder / "rivals" / str(attempt)


def _rivalry(folder: Path, attempt: int, words: list[LastWord]) -> str:
    """Return how many processes of a program trained as one rank, if more than one did."""
    place = rivals(folder, attempt)
    told = sorted(path.name for path in place.iterdir()) if place.exists() else []
    if not told or any("failed" in word.last for word in words):
        return ""
    rank = told[0].partition("-")[0]
    several = 1 + sum(each.startswith(f"{rank}-") for each in told)
    return f"{several} processes trained as rank {rank}, each alone: they are not distributed"


def _guest_fault(
    words: list[LastWord], world: int, exits: Mapping[int, int], killed: Mapping[int, str]
) -> str:
    """Return what is wrong with a program all of whose ranks ended, if something is."""
    ends = [word.last for word in words if word.ended and word.last.get("guest")]
    silent = [word for word in words if not word.lines]
    died = exits or killed
    if ends and not died and len(ends) + len(silent) == len(words) and ends[0]["alone"]:
        return "the program is not distributed: every process trains alone"
    if len(ends) < len(words):
        return ""
    made = max(end["world"] for end in ends)
    if made > world:
        return f"the program made {made} ranks of its own where {world} were asked for"
    used = ends[0].get("devices") or 0
    if used > ends[0].get("asked", used):
        return f"the program took {used} devices of its own where {ends[0]['asked']} were asked for"
    if any(end["alone"] for end in ends):
        return "the program is not distributed: every process trains alone"
    if exits:
        return f"the program ended with code {next(iter(exits.values()))}"
    if not any(end["taken"] for end in ends):
        return "the program took no training step that could be seen"
    return ""


def _told_to_go(words: list[LastWord]) -> str:
    """Say where ranks left that were told to go, if they did so in order."""
    if not words or not all("left" in word.last for word in words):
        return ""
    return f"it was told to go, and left after step {words[0].last['left']} with a checkpoint"


def _killed_early(
    folder: Path, words: list[LastWord], killed: Mapping[int, str]
) -> tuple[LastWord | None, str] | None:
    """Return the rank that a signal ended before its first line, and a sentence; or nothing.

    Only the first process that was killed counts: losing it may kill those with lines.
    """
    pid, name = next(iter(killed.items()), (None, ""))
    if pid is None or any(word.find("pid") == pid for word in words):
        return None
    raised = [word for word in words if word.last.get("kind") not in (None, "terminated")]
    if raised and name in ("SIGTERM", "SIGABRT"):  # A lost rank often ends the others so.
        return None
    silent = [word for word in words if not word.lines]
    rank = ranks_by_pid(folder).get(pid, silent[0].rank if len(silent) == 1 else None)
    guilty = next((word for word in silent if word.rank == rank), None)
    process = f"rank {guilty.rank} (process {pid})" if guilty else f"process {pid}"
    reason = usual_reason(name)
    return guilty, f"{process} was killed by {name} before it recorded anything{reason}"


def _cause(
    words: list[LastWord], why: str, killed: Mapping[int, str], exits: Mapping[int, int]
) -> tuple[LastWord | None, str]:
    """Return the rank that failed first and a sentence that says how."""
    begun = [word for word in words if word.lines and not word.ended]
    if why:
        return (begun[0] if len(begun) == 1 else None), why
    silent = [word for word in begun if "failed" not in word.last]
    if any(word.find("guest") for word in begun) and len(silent) < len(begun):
        # A program's ranks do not catch the SIGTERM that torchrun ends the others with.
        silent = [word for word in silent if killed.get(word.find("pid"), "SIGTERM") != "SIGTERM"]
    if silent:
        # Losing one rank may kill the next: the first that was seen to die is the cause.
        seen = {pid: place for place, pid in enumerate(killed)}
        lost = min(silent, key=lambda word: seen.get(word.find("pid"), len(seen)))
        by = killed.get(lost.find("pid"), "")
        code = exits.get(lost.find("pid"))
        ended = f"ended with {_code(code)}" if code else "died without a word"
        how = f"was killed by {by}" if by else ended
        return lost, f"{_name(lost)} {how} {lost.place}{usual_reason(by)}"
    begun = [word for word in begun if "failed" in word.last]
    told_to_end = ""
    if any(not word.lines for word in words):
        # Ranks that were told to end are not the cause where another has not even begun.
        terminated = [word for word in begun if word.last["kind"] == "terminated"]
        begun = [word for word in begun if word not in terminated]
        if terminated:
            told_to_end = f", and rank {terminated[0].rank} was {terminated[0].last['failed']}"
    begun.sort(key=_order)
    if begun and (still := _stood_still(begun)):
        waited = begun[0].find("stalled")["seconds"]
        return still, f"{_name(still)} stood still {still.place}: the others waited {waited:.0f} s"
    if begun:
        first = begun[0]
        code = exits.get(first.find("pid"))
        ended = f" (code {code})" if code and first.find("guest") else ""
        told = f"{_name(first)} failed {first.place}: {first.last['failed']}{ended}"
        return first, told + _left_early(words, first)
    silent = [word for word in words if not word.lines]
    code = next(iter(exits.values()), None)
    if len(silent) < len(words):
        ended = f"; a process ended with {_code(code)}" if code else ""
        return silent[0], f"rank {silent[0].rank} left no word{told_to_end}{ended}"
    return None, "no rank started" + (f": a process ended with {_code(code)}" if code else "")


def _code(code: int) -> str:
    """Return an exit code in words; a shell adds 128 to the signal that ended its command.

    >>> _code(3), _code(137)
    ('code 3', 'code 137: SIGKILL (often out of memory)')
    """
    number = -code if code < 0 else code - 128
    if number <= 0 or (code > 0 and number > LAST_STANDARD_SIGNAL):
        return f"code {code}"
    name = signal_name(number)
    return f"code {code}: {name}{usual_reason(name)}"


def _order(word: LastWord) -> tuple[bool, int, int, float]:
    """Order failed ranks by who is to blame: of those that hang, the one that is behind."""
    hangs = word.find("stalled") if word.last["kind"] == "stalled" else None
    behind = (hangs["steps"], hangs["laps"]) if hangs else (-1, -1)
    return word.last["kind"] == "terminated", *behind, word.last["at"]


def _stood_still(failed: list[LastWord]) -> LastWord | None:
    """Return the rank for which the others waited in vain, and which itself noticed nothing.

    One that hangs in its own code says so; one whose process or node is stopped cannot.
    """
    if failed[0].last["kind"] != "stalled":
        return None
    told = (word for word in failed if word.last["kind"] == "terminated")
    return next((word for word in told if not word.find("stalled")), None)


def _left_early(words: list[LastWord], failed: LastWord) -> str:
    """Say which rank of a program had ended well before another failed: that one waits for it."""
    steps = failed.find("steps")
    for word in words:
        if word.ended and word.last.get("guest") and steps and word.last["taken"] <= steps[1]:
            return (
                f"; rank {word.rank} had left its loop after {word.last['taken']} steps: "
                "every rank must take as many"
            )
    return ""


def _name(word: LastWord) -> str:
    host, pid = word.find("host"), word.find("pid")
    return f"rank {word.rank}" + (f" on {host} (process {pid})" if host else "")
