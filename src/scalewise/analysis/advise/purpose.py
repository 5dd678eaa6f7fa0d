"""Purposes that users state: limits to meet, such as ``deadline=2h``, and a goal, such as the least
time, that chooses among the scales (numbers of devices) that meet them. A new purpose needs an
entry in ``PURPOSES`` and an example in the help (``cli/options.py``).
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite

from scalewise.analysis.advise.durations import NUMBER, parse_duration
from scalewise.analysis.advise.scale import Scale
from scalewise.analysis.measure import Estimate
from scalewise.analysis.measure.energy import JOULES_PER_UNIT
from scalewise.errors import SpecError, shown
from scalewise.validate import suggest_name

GOALS: Mapping[str, Callable[[Scale], float]] = {
    "device-hours": lambda scale: scale.device_time,
    "time": lambda scale: scale.slowness,
    "balanced": lambda scale: scale.device_time * scale.slowness,
    "balanced by energy": lambda scale: (
        (scale.energy.value if scale.energy else inf) * scale.slowness
    ),
}
"""By goal: the number that is minimized among the scales that meet all limits."""


@dataclass(frozen=True, slots=True)
class PurposeKind:
    """How one purpose is written, the quantity it limits, and the goal it implies."""

    example: str
    """How users write it."""
    goal: str
    """What is minimized if only this purpose is given; a key of ``GOALS``."""
    quantity: str | None = None
    """The field of ``Scale`` that it limits; None for a goal without a limit."""
    units: Mapping[str, float] | None = None
    """Allowed units as factors. None: a time has its own parser, a cost may have any currency."""
    is_lower_bound: bool = False


PURPOSES = {
    "deadline": PurposeKind("deadline=2h", "device-hours", "time"),
    "efficiency": PurposeKind(
        "efficiency=0.8", "time", "efficiency", {"": 1, "%": 0.01}, is_lower_bound=True
    ),
    "budget": PurposeKind("budget=200", "time", "device_hours", {"": 1, "h": 1, "device-hours": 1}),
    "cost": PurposeKind("cost=500", "time", "cost"),
    "energy": PurposeKind("energy=40kWh", "time", "energy", JOULES_PER_UNIT),
    "throughput": PurposeKind(
        "throughput=5000", "device-hours", "throughput", {"": 1, "/s": 1}, is_lower_bound=True
    ),
    "time": PurposeKind("time", "time"),
    "balanced": PurposeKind("balanced", "balanced"),
}
"""By name. A limit on time or throughput implies the cheapest scale, other limits the fastest."""
EXAMPLES = f"one of {', '.join(kind.example for kind in PURPOSES.values())}"


@dataclass(frozen=True, slots=True)
class Limit:
    """A bound on a quantity, in seconds, shares, device-hours, money, joules or samples/s."""

    name: str
    bound: float
    text: str
    """As the user wrote it."""
    unit: str = ""
    """The currency of a cost, if stated."""

    @property
    def kind(self) -> PurposeKind:
        return PURPOSES[self.name]

    def quantity(self, scale: Scale) -> Estimate | None:
        """Return the limited quantity of a scale; None where it is unknown."""
        assert self.kind.quantity is not None  # A purpose without a quantity is a goal.
        value: Estimate | None = getattr(scale, self.kind.quantity)
        return value

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Purpose:
    """Limits that must all be met, and the goal that chooses among the scales that meet them."""

    limits: tuple[Limit, ...]
    goal: str
    """A key of ``GOALS``."""

    def __str__(self) -> str:
        parts = [limit.text for limit in self.limits]
        if self.goal != _implied_goal(self.limits) or not parts:  # Implied goals are omitted.
            parts.append(self.goal)
        return ", ".join(parts)

    def objective(self, scales: Sequence[Scale]) -> str:
        """Return the key of ``GOALS``: ``balanced`` uses energy if that of all scales is known."""
        by_energy = self.goal == "balanced" and all(scale.energy for scale in scales)
        return "balanced by energy" if by_energy else self.goal

    @classmethod
    def parse(cls, purposes: "str | Iterable[str]") -> "Purpose":
        """Parse ``deadline=2h``, or several purposes. A named goal replaces the implied goal.

        >>> Purpose.parse(["deadline=2h", "efficiency=0.8"]).goal
        'device-hours'
        >>> Purpose.parse("efficiency=80%").limits[0].bound
        0.8
        """
        has_several = isinstance(purposes, Iterable) and not isinstance(purposes, str)
        arguments: list[object] = list(purposes) if has_several else [purposes]
        parts = []
        for argument in arguments:
            if not isinstance(argument, str):
                raise SpecError(f"a purpose is text, got {shown(argument)}", hint=EXAMPLES)
            parts += [part.strip() for part in argument.split(",")]
        if not parts:
            raise SpecError("no purpose was given", hint=EXAMPLES)
        goals = {part for part in parts if part in PURPOSES and not PURPOSES[part].quantity}
        limits = [_parse_limit(part) for part in parts if part not in goals]
        if len(goals) > 1:
            raise SpecError(
                "time and balanced are two goals, only one is possible",
                hint="keep one of them; several limits are possible",
            )
        names = [limit.name for limit in limits]
        for name in names:
            if names.count(name) > 1:
                raise SpecError(
                    f"{name} was given twice", hint=f"keep one {PURPOSES[name].example}"
                )
        return cls(tuple(limits), goals.pop() if goals else _implied_goal(limits))


def _implied_goal(limits: Iterable[Limit]) -> str:
    """Return the implied goal: ``device-hours`` for limits on time or throughput, else ``time``."""
    goals = {limit.kind.goal for limit in limits}
    return "device-hours" if "device-hours" in goals else "time"


def _parse_limit(text: str) -> Limit:
    name, _, value = (part.strip() for part in text.partition("="))
    if name not in PURPOSES:
        raise SpecError(
            f"not a purpose: {shown(text)}", hint=suggest_name(name, PURPOSES) or EXAMPLES
        )
    kind = PURPOSES[name]
    example = f"for example {kind.example}"
    if kind.quantity is None:
        raise SpecError(f"{name} takes no number, got {shown(text)}", hint=f"write {name} alone")
    if not value:
        raise SpecError(f"{name} needs a number", hint=example)
    if kind.quantity == "time":
        bound, unit = parse_duration(value, text, f"{name}=90min"), ""
    else:
        bound, unit = _parse_amount(kind, name, value, text)
    if bound <= 0 or not isfinite(bound):
        raise SpecError(f"{name} must be above 0, got {shown(text)}", hint=example)
    if kind.quantity == "efficiency" and bound > 1:
        percent = f" or {name}={value}%" if 2 <= bound <= 100 else ""
        problem = f"an efficiency is a share from 0 to 1, got {shown(text)}"
        raise SpecError(problem, hint=f"{example}{percent}")
    return Limit(name, bound, f"{name}={value}", unit if kind.quantity == "cost" else "")


def _parse_amount(kind: PurposeKind, name: str, value: str, text: str) -> tuple[float, str]:
    """Return a number in the unit of its quantity, and the written unit; errors quote ``text``."""
    match = re.fullmatch(rf"{NUMBER}\s*(.*)", value)
    units = kind.units
    if not match or (units is not None and match[2] not in units):
        suffix = f" with {', '.join(units)}" if units and "" not in units else ""
        raise SpecError(
            f"{name} must be a number{suffix}, got {shown(text)}",
            hint=f"for example {kind.example}",
        )
    return float(match[1]) * (units[match[2]] if units else 1), match[2].strip()
