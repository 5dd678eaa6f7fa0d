"""In which settings and in which parts of the environment two sides differ."""

from dataclasses import dataclass
from typing import Any, Literal

from scalewise.analysis.compare.side import Side

Kind = Literal["configuration", "environment"]
HIDDEN = "hidden"
"""Shown instead of the value of a variable of the study (``env``), which may be a secret."""


@dataclass(frozen=True, slots=True)
class SettingDifference:
    """A setting whose value is not the same on both sides; None: not set."""

    kind: Kind
    name: str
    before: Any
    after: Any


def setting_differences(a: Side, b: Side) -> tuple[SettingDifference, ...]:
    """Return the settings of the studies, then the facts about their machines, that differ."""
    rows: list[SettingDifference] = []
    kinds: tuple[tuple[Kind, Any, Any], ...] = (
        ("configuration", a.settings, b.settings),
        ("environment", a.environment, b.environment),
    )
    for kind, before, after in kinds:
        if not before or not after:  # A table says nothing about its settings.
            continue
        for name in dict.fromkeys([*before, *after]):
            values = before.get(name), after.get(name)
            if repr(values[0]) != repr(values[1]):
                rows.append(SettingDifference(kind, name, *_shown(kind, name, values)))
    if not a.settings or not b.settings:
        for name in ("scaling", "unit", "work"):
            values = getattr(a.curve, name), getattr(b.curve, name)
            if None not in values and values[0] != values[1]:
                rows.append(SettingDifference("configuration", name, *values))
    return tuple(rows)


def _shown(kind: Kind, name: str, values: tuple[Any, Any]) -> tuple[Any, Any]:
    if kind == "environment" or not name.startswith("env."):
        return values
    before, after = (None if value is None else HIDDEN for value in values)
    return before, after
