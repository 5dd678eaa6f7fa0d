"""One thing that was asked, its answer, and how to ask so that nothing breaks or hangs."""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

Level = Literal["ok", "note", "fault"]
MARKS: Mapping[Level, str] = {"ok": "ok", "note": "note", "fault": "--"}
LEVELS: tuple[Level, ...] = ("ok", "note", "fault")
"""Levels, from well to bad."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was asked, the answer, and what to do about it."""

    name: str
    says: str
    hint: str = ""
    level: Level = "ok"
    """A note is worth knowing and stops nothing; a fault spoils a study or its numbers."""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """What was seen, as JSON takes it."""

    @property
    def good(self) -> bool:
        """Whether nothing is wrong."""
        return self.level != "fault"

    def __str__(self) -> str:
        """The finding as a line for people, its remedy below."""
        line = f"{MARKS[self.level]:<4}  {self.name:<14} {self.says}"
        return f"{line}\n{'':20} {self.hint}" if self.hint else line

    def to_dict(self) -> dict[str, Any]:
        """The finding as JSON takes it."""
        told = {"good": self.good, "level": self.level, "says": self.says, "hint": self.hint}
        return {**told, "evidence": dict(self.evidence)} if self.evidence else told


@dataclass(frozen=True, slots=True)
class Remark:
    """One thing to say about a finding, and how bad it is."""

    level: Level
    says: str
    hint: str = ""


def make_finding(
    name: str, says: str, remarks: Sequence[Remark], evidence: Mapping[str, Any]
) -> Finding:
    """Put a finding together from what there is to remark; the worst remark gives its level."""
    levels: list[Level] = ["ok", *(each.level for each in remarks)]
    words = "; ".join([says, *(each.says for each in remarks)])
    hints = dict.fromkeys(each.hint for each in remarks if each.hint)
    return Finding(name, words, "; ".join(hints), max(levels, key=LEVELS.index), evidence)


def run_check(name: str, question: Callable[[], Finding]) -> Finding:
    """Ask; a question that breaks is a finding too, and spoils no other."""
    try:
        return question()
    except Exception as why:
        says = f"could not be asked: {type(why).__name__}: {why}"
        return Finding(name, says, "look at this part of the machine by hand", "fault")


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What a program said."""

    code: int | None
    """Its exit code; None if it gave none in time."""
    said: str
    complained: str

    @property
    def well(self) -> bool:
        """Whether it answered and had nothing to complain about."""
        return self.code == 0

    @property
    def words(self) -> str:
        """Its last line, of complaint if there was one."""
        lines = (self.complained.strip() or self.said.strip()).splitlines()
        return lines[-1] if lines else f"exit code {self.code}"


def run_command(*argv: str, seconds: float = 4.0) -> CommandResult | None:
    """Ask a program on the PATH; None if there is none. It is ended if it takes too long."""
    if not shutil.which(argv[0]):
        return None
    try:
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
    except OSError as why:
        return CommandResult(126, "", f"{argv[0]} cannot be started: {why.strerror or why}")
    with child:
        try:
            said, complained = child.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):  # Also its children, which hold the pipes.
                os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
            return CommandResult(None, "", f"no answer within {seconds:.0f} s")
    return CommandResult(child.returncode, said, complained)


def format_bytes(size: float) -> str:
    """Return bytes for people.

    >>> gib(3 * 2**30), gib(64 * 2**20)
    ('3.0 GiB', '64 MiB')
    """
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"
