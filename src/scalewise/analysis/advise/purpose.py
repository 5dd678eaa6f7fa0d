"""What devices are for: limits to keep, and what is best among the scales that keep them."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite
from typing import Literal

from scalewise.analysis.measure.energy import JOULES_PER_UNIT
from scalewise.errors import SpecError
from scalewise.validate import nearest

Goal = Literal["device-hours", "time", "balanced"]
EXAMPLES = {
    "deadline": "deadline=2h",
    "efficiency": "efficiency=0.8",
    "budget": "budget=200",
    "cost": "cost=500",
    "energy": "energy=40kWh",
    "throughput": "throughput=5000",
    "time": "time",
    "balanced": "balanced",
}
"""Every purpose, and how it is written."""
GOALS: dict[str, Goal] = {"time": "time", "balanced": "balanced"}
"""Purposes without a limit."""
FLOORS = ("efficiency", "throughput")
"""Limits from below; the others are from above."""
SPEED = ("deadline", "throughput")
"""Limits that ask for speed: then the cheapest is best. The others ask to spare: the fastest."""
NUMBER = r"([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[-+]?[0-9]+)?)"
SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
UNITS = {
    "efficiency": ("", "%"),
    "budget": ("", "h", "device-hours"),
    "throughput": ("", "/s"),
    "energy": tuple(JOULES_PER_UNIT),
}
"""What may follow a number; money may have any name."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A bound on a quantity: seconds, a share, device-hours, money, joules or work per second."""

    name: str
    bound: float
    text: str
    """As it was written."""
    unit: str = ""
    """Of money: its name, where one was written."""

    @property
    def floor(self) -> bool:
        """Whether more is better."""
        return self.name in FLOORS

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Purpose:
    """Limits, all of which are to be met, and the goal that chooses among what meets them."""

    limits: tuple[Limit, ...]
    goal: Goal

    def __str__(self) -> str:
        told = [limit.text for limit in self.limits]
        if self.goal != _usual(self.limits) or not told:
            told.append(self.goal)
        return ", ".join(told)

    @classmethod
    def parse(cls, given: "str | Iterable[str]") -> "Purpose":
        """Read ``deadline=2h`` and its like; several are one purpose.

        Limits of speed alone, or of both kinds, leave the fewest device-hours to
        choose by; limits that spare leave the time. A goal that is named wins.

        >>> Purpose.parse(["deadline=2h", "efficiency=0.8"]).goal
        'device-hours'
        >>> Purpose.parse("efficiency=80%").limits[0].bound
        0.8
        """
        several = isinstance(given, Iterable) and not isinstance(given, str)
        words = list(given) if several else [given]
        parts = [part.strip() for word in words for part in _text(word).split(",")]
        if not parts:
            raise SpecError("no purpose was given", hint=_examples())
        goals = {GOALS[part] for part in parts if part in GOALS}
        limits = [_limit(part) for part in parts if part not in GOALS]
        if len(goals) > 1:
            raise SpecError(
                "time and balanced are two goals", hint="keep one of them; limits can be several"
            )
        names = [limit.name for limit in limits]
        for name in names:
            if names.count(name) > 1:
                raise SpecError(f"{name} was given twice", hint=f"keep one {EXAMPLES[name]}")
        return cls(tuple(limits), goals.pop() if goals else _usual(limits))


def _usual(limits: Iterable[Limit]) -> Goal:
    """Return what is best where only limits are given."""
    return "device-hours" if any(limit.name in SPEED for limit in limits) else "time"


def _text(word: object) -> str:
    if not isinstance(word, str):
        raise SpecError(f"a purpose is text, got {word!r}", hint=_examples())
    return word


def _limit(part: str) -> Limit:
    name, equals, rest = (word.strip() for word in part.partition("="))
    if name not in EXAMPLES:
        raise SpecError(f"not a purpose: {part!r}", hint=nearest(name, EXAMPLES) or _examples())
    if name in GOALS:
        raise SpecError(f"{name} takes no number, got {part!r}", hint=f"write {name} alone")
    if not equals or not rest:
        raise SpecError(f"{name} needs a number", hint=f"for example {EXAMPLES[name]}")
    unit = ""
    if name == "deadline":
        bound = duration(part, rest)
    else:
        bound, unit = _amount(part, name, rest)
    if bound <= 0 or not isfinite(bound):
        why = "a deadline must lie ahead" if name == "deadline" else f"{name} must be above 0"
        raise SpecError(f"{why}, got {part!r}", hint=f"for example {EXAMPLES[name]}")
    if name == "efficiency" and bound > 1:
        percent = f" or efficiency={rest}%" if 2 <= bound <= 100 else ""
        raise SpecError(
            f"an efficiency is a share from 0 to 1, got {part!r}",
            hint=f"for example efficiency=0.8{percent}",
        )
    return Limit(name, bound, f"{name}={rest}", unit if name == "cost" else "")


def duration(part: str, rest: str, example: str = "deadline=90min") -> float:
    """Read ``2h``, ``90min`` or ``1h30m``, in seconds."""
    piece = rf"{NUMBER}\s*(s|min|m|h|d)\s*"
    if not re.fullmatch(f"(?:{piece})+", rest):
        raise SpecError(
            f"not a time span: {part!r}", hint=f"a number and s, min, h or d: {example}"
        )
    return sum(float(number) * SECONDS[unit] for number, unit in re.findall(piece, rest))


def _amount(part: str, name: str, rest: str) -> tuple[float, str]:
    """Read a number and what follows it."""
    found = re.fullmatch(rf"{NUMBER}\s*(.*)", rest)
    if not found or (name != "cost" and found[2] not in UNITS[name]):
        units = f" with {', '.join(JOULES_PER_UNIT)}" if name == "energy" else ""
        raise SpecError(
            f"{name} must be a number{units}, got {part!r}", hint=f"for example {EXAMPLES[name]}"
        )
    factor = (
        0.01 if found[2] == "%" else JOULES_PER_UNIT.get(found[2], 1) if name == "energy" else 1
    )
    return float(found[1]) * factor, found[2].strip()


def _examples() -> str:
    return f"one of {', '.join(EXAMPLES.values())}"
