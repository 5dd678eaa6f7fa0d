"""A run's options: keyword arguments of its two *parts*, the workload and the strategy."""

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from inspect import signature
from typing import Any

from scalewise import plugins
from scalewise.errors import ScalewiseError, SpecError, shown
from scalewise.frameworks.data_source import Shape
from scalewise.spec import RunSpec
from scalewise.validate import INT32_MAX, check_integer, check_type, suggest_name

BUILD_ERRORS = (TypeError, ValueError, RuntimeError, AssertionError, AttributeError, LookupError)
"""Exceptions of a model that cannot be built for the shape of the samples or with the options."""


def check_options(spec: RunSpec, workload: Callable[..., Any]) -> None:
    """Refuse options that neither the workload nor the strategy has, and values of a wrong type."""
    strategy = plugins.load("strategies", spec.strategy, framework=spec.framework)
    names = [*option_names(workload), *option_names(strategy)]
    for part in (workload, strategy):
        options_for(part, spec)  # Refuses wrong types.
    for key in spec.options:
        if key not in names and not _takes_any_option(workload):
            raise SpecError(
                f"{spec.workload} with {spec.strategy} has no option {shown(key)}",
                hint=suggest_name(key, names) or f"known are: {', '.join(names) or 'none'}",
            )


def option_names(part: Any) -> list[str]:
    """Return the names of a part's options: its keywords; a dataclass stands for its fields."""
    names: list[str] = []
    for name, default in _keywords(part).items():
        names += [field.name for field in fields(default)] if is_dataclass(default) else [name]
    return names


def options_for(part: Any, spec: RunSpec) -> dict[str, Any]:
    """Return the keyword arguments for a part, from the run's options that belong to it."""
    arguments: dict[str, Any] = {}
    for name, default in _keywords(part).items():
        if is_dataclass(default):
            names = {field.name for field in fields(default)}
            values = {key: value for key, value in spec.options.items() if key in names}
            arguments[name] = replace(default, **values)  # type: ignore[type-var]  # A dataclass.
        elif name in spec.options:
            _refuse_value(name, spec.options[name], default)
            arguments[name] = spec.options[name]
    if _takes_any_option(part):
        strategy = plugins.load("strategies", spec.strategy, framework=spec.framework)
        named = {*arguments, *option_names(strategy)}  # These are not for ``**kwargs``.
        arguments |= {key: value for key, value in spec.options.items() if key not in named}
    return arguments


def build_model(factory: Callable[..., Any], spec: RunSpec, shape: Shape, classes: int) -> Any:
    """Return a workload's model; ``shape`` is that of an image, or the length of a sequence."""
    try:
        return factory(shape, classes, **options_for(factory, spec))
    except ScalewiseError:
        raise
    except (*BUILD_ERRORS, SystemExit) as error:
        is_exit = isinstance(error, SystemExit)
        reason = "it calls sys.exit" if is_exit else " ".join(str(error).split())
        samples = f"{shape} tokens" if isinstance(shape, int) else f"images of {shape}"
        raise SpecError(
            f"{spec.workload} cannot be built for {samples} "
            f"with options {dict(spec.options)}: {reason}",
            hint=_build_hint(str(spec.workload), shape, classes),
        ) from error


def _build_hint(workload: str, shape: Shape, classes: int) -> str:
    """Return how to find out why a model cannot be built.

    >>> _build_hint("mine:net", 64, 10)
    'call it in Python to see where: from mine import net; net(64, 10)'
    """
    module, colon, name = workload.partition(":")
    if not colon or module in plugins.framework_parts("libraries", "torch"):  # Not the user's code.
        return "check its options, and the size of its input: edge, length or data"
    call = f"from {module} import {name.partition('.')[0]}; {name}({shape}, {classes})"
    return f"call it in Python to see where: {call}"


def _refuse_value(name: str, value: Any, default: Any) -> None:
    """Refuse a value of another type than the option's default, and whole numbers below 1."""
    if isinstance(default, bool):
        check_type(name, value, bool, "true or false")
    elif isinstance(default, int):
        check_integer(name, value, minimum=min(1, default))  # 0 is valid if it is the default.
    elif isinstance(default, Sequence) and not isinstance(default, str):
        check_type(name, value, (list, tuple), f"a list, such as {[*default]}")
        is_numeric = all(isinstance(item, int) for item in default)
        if is_numeric and not all(type(item) is int and 0 < item <= INT32_MAX for item in value):
            raise SpecError(
                f"each of {name} must be a whole number from 1 to {INT32_MAX:,}, got "
                f"{shown(value)}",
                hint=f"for example {name} = {[*default]}",
            )


def _keywords(part: Any) -> dict[str, Any]:
    """Return the arguments that are keyword-only or have a default, with their defaults."""
    return {
        arg.name: arg.default
        for arg in signature(part).parameters.values()
        if arg.kind is arg.KEYWORD_ONLY
        or (arg.kind is arg.POSITIONAL_OR_KEYWORD and arg.default is not arg.empty)
    }


def _takes_any_option(part: Any) -> bool:
    """Return whether a part takes options of any name (``**kwargs``), as a library's model does."""
    return any(arg.kind is arg.VAR_KEYWORD for arg in signature(part).parameters.values())
