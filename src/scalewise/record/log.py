"""Read a run's log: what its program said, without the words of torchrun above it.

Standard library only, and Python 3.10, as everything that closes a run.
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

TRACEBACK = "Traceback (most recent call last):"
_AGENT = re.compile(r"[IWEF]\d{4} [\d:.]+ \d+ .*torch/distributed/(elastic|launcher|run)")
"""A line of torchrun's own log."""
_AGENT_ENDS = re.compile(r"torch\.distributed\.elastic\.\S+\.(ChildFailedError|SignalException)\b")
"""What torchrun ends with because a process has ended."""
_RULE = re.compile(r"={20,}$")


def all_lines(folder: Path) -> list[str]:
    """Return the lines of the last attempt's log, but for empty ones."""
    try:
        log = (folder / "log.txt").read_bytes()[_beginning(folder) :]
    except OSError:
        return []
    return [line for line in log.decode("utf-8", errors="replace").splitlines() if line.strip()]


def own_lines(folder: Path) -> list[str]:
    """Return what the program itself said there: without torchrun's words."""
    return list(_own(all_lines(folder)))


def first_traceback(lines: Sequence[str], told: str = "") -> str:
    """Return the first traceback in these lines; ``told`` is known to hold its message.

    A message of several lines looks like any other output, so its end is taken from there.
    """
    start = next((k for k, line in enumerate(lines) if line.endswith(TRACEBACK)), None)
    if start is None:
        return ""
    end = _end(lines, start)
    margin = len(lines[start]) - len(TRACEBACK)
    for line in filter(str.strip, told.split("\n")[1:]):
        if end >= len(lines) or not line.startswith(lines[end][margin:]):
            break
        end += 1
    return "\n".join(lines[start:end])


def _beginning(folder: Path) -> int:
    """Return where the last attempt begins in the log, in bytes."""
    try:
        return int(json.loads((folder / "job.json").read_text(encoding="utf-8")).get("log", 0))
    except (OSError, ValueError, AttributeError, TypeError):
        return 0


def _own(lines: Sequence[str]) -> Iterator[str]:
    at = 0
    while at < len(lines):
        end = _end(lines, at) if lines[at].endswith(TRACEBACK) else at + 1
        if _AGENT_ENDS.match(lines[end - 1]):
            at = _after_summary(lines, end)
            continue
        if not _AGENT.match(lines[at]):
            yield from lines[at:end]
        at = end


def _end(lines: Sequence[str], start: int) -> int:
    """Return the place after a traceback, of whose message the first line counts."""
    margin = len(lines[start]) - len(TRACEBACK)  # torchrun may put a rank before each line.
    inside = (k for k in range(start + 1, len(lines)) if not lines[k][margin:].startswith(" "))
    return next(inside, len(lines) - 1) + 1


def _after_summary(lines: Sequence[str], start: int) -> int:
    """Return the place after torchrun's list of failures, which stands between two rules."""
    if start >= len(lines) or not _RULE.match(lines[start]):
        return start
    closing = (k for k in range(start + 1, len(lines)) if _RULE.match(lines[k]))
    return next(closing, len(lines) - 1) + 1
