"""The options of a run: the arguments with a name and a default of what makes its parts."""

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from inspect import signature
from typing import Any

from scalewise import plugins
from scalewise.errors import SpecError
from scalewise.spec import RunSpec
from scalewise.validate import HUGE, nearest, typed, whole


def check_options(spec: RunSpec, workload: Callable[..., Any]) -> None:
    """Refuse options that neither the workload nor the strategy knows, or cannot take."""
    strategy = _strategy(spec)
    known = [*options_of(workload), *options_of(strategy)]
    for part in (workload, strategy):
        options_for(part, spec)
    for key in spec.options:
        if key not in known and not _takes_any(workload):
            raise SpecError(
                f"{spec.workload} with {spec.strategy} has no option {key!r}",
                hint=nearest(key, known) or f"known are: {', '.join(known) or 'none'}",
            )


def options_of(part: Any) -> list[str]:
    """Return the names of a part's options: its arguments that have a name and a default.

    Several that belong together are the fields of one, a dataclass that checks them.
    """
    found: list[str] = []
    for name, default in _keywords(part).items():
        found += [each.name for each in fields(default)] if is_dataclass(default) else [name]
    return found


def options_for(part: Any, spec: RunSpec) -> dict[str, Any]:
    """Return those of the run's options that are for this part, as its arguments."""
    chosen: dict[str, Any] = {}
    for name, default in _keywords(part).items():
        if is_dataclass(default):
            names = {each.name for each in fields(default)}
            given = {key: value for key, value in spec.options.items() if key in names}
            chosen[name] = replace(default, **given)  # type: ignore[type-var]  # A dataclass: see above.
        elif name in spec.options:
            _refuse_unlike(name, spec.options[name], default)
            chosen[name] = spec.options[name]
    if _takes_any(part):
        others = {*chosen, *options_of(_strategy(spec))}
        chosen |= {key: value for key, value in spec.options.items() if key not in others}
    return chosen


def _strategy(spec: RunSpec) -> Callable[..., Any]:
    found: Callable[..., Any] = plugins.load("strategies", spec.strategy, framework=spec.framework)
    return found


def _refuse_unlike(name: str, value: Any, default: Any) -> None:
    """Refuse a value of another kind than the option's default, and sizes below 1."""
    if isinstance(default, bool):
        typed(name, value, bool, "true or false")
    elif isinstance(default, int):
        whole(name, value, least=min(1, default))
    elif isinstance(default, Sequence) and not isinstance(default, str):
        typed(name, value, (list, tuple), f"a list, such as {[*default]}")
        numbers = all(isinstance(usual, int) for usual in default)
        if numbers and not all(type(each) is int and 0 < each <= HUGE for each in value):
            raise SpecError(
                f"each of {name} must be a whole number from 1 to {HUGE:,}, got {value!r}",
                hint=f"for example {name} = {[*default]}",
            )


def _keywords(part: Any) -> dict[str, Any]:
    every = signature(part).parameters.values()
    return {
        each.name: each.default
        for each in every
        if each.kind is each.KEYWORD_ONLY
        or (each.kind is each.POSITIONAL_OR_KEYWORD and each.default is not each.empty)
    }


def _takes_any(part: Any) -> bool:
    """Say whether a part takes options of any name, as a library's model does."""
    return any(each.kind is each.VAR_KEYWORD for each in signature(part).parameters.values())
