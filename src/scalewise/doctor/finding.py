"""The result of one check, and how to run checks that may fail."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Level = Literal["ok", "note", "fault"]
MARKS: Mapping[Level, str] = {"ok": "ok", "note": "note", "fault": "--"}
"""How each level is shown; ordered from good to bad."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check: a sentence that says what was found, and a hint what to do."""

    name: str
    says: str
    hint: str = ""
    level: Level = "ok"
    """A note is worth knowing; a fault breaks a study or makes its times unreliable."""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """The observed values, for JSON."""

    @property
    def good(self) -> bool:
        """Whether there is no fault."""
        return self.level != "fault"

    def __str__(self) -> str:
        """The finding as a line of text, with its hint on a second line."""
        line = f"{MARKS[self.level]:<4}  {self.name:<14} {self.says}"
        return f"{line}\n{'':20} {self.hint}" if self.hint else line

    def to_dict(self) -> dict[str, Any]:
        """The finding as JSON values."""
        values = {"good": self.good, "level": self.level, "says": self.says, "hint": self.hint}
        return {**values, "evidence": dict(self.evidence)} if self.evidence else values


@dataclass(frozen=True, slots=True)
class Remark:
    """A problem, or a fact worth knowing, that becomes a part of a finding."""

    level: Level
    says: str
    hint: str = ""


def make_finding(
    name: str, says: str, remarks: Sequence[Remark], evidence: Mapping[str, Any]
) -> Finding:
    """Return a finding with these remarks, and with the level of the worst remark."""
    levels: list[Level] = ["ok", *(remark.level for remark in remarks)]
    sentence = "; ".join([says, *(remark.says for remark in remarks)])
    hints = dict.fromkeys(remark.hint for remark in remarks if remark.hint)
    return Finding(name, sentence, "; ".join(hints), max(levels, key=list(MARKS).index), evidence)


def run_check(name: str, check: Callable[[], Finding]) -> Finding:
    """Run a check; return an error as a finding too, so that the other checks can follow."""
    try:
        return check()
    except Exception as error:
        says = f"the check failed: {type(error).__name__}: {error}"
        return Finding(name, says, "look at this part of the machine by hand", "fault")


def format_bytes(size: float) -> str:
    """Return bytes in GiB or MiB.

    >>> format_bytes(3 * 2**30), format_bytes(64 * 2**20)
    ('3.0 GiB', '64 MiB')
    """
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"
