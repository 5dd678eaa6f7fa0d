"""Check settings and arguments; the error for a wrong value shows the value."""

import json
import os
import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from sys import float_info
from typing import Any

from scalewise.errors import SpecError, shown
from scalewise.files import access_hint

INT32_MAX = 2**31 - 1


def suggest_name(name: object, choices: Iterable[str]) -> str:
    """Return a hint with the closest choice, same letters first; empty if no choice is close.

    >>> suggest_name("vit-h41", ["vit-h14", "vit-h16"])
    "did you mean 'vit-h14'?"
    """
    similar = get_close_matches(str(name), list(choices))
    anagrams = [candidate for candidate in similar if sorted(candidate) == sorted(str(name))]
    return f"did you mean {(anagrams or similar)[0]!r}?" if similar else ""


PERMISSION_HINT = "`ls -ld` on it and on the folders above says who may read it"
"""The hint for a path that exists but may not be read."""


def path_exists(path: Path) -> bool:
    """Return whether a path exists; raise SpecError if permissions prevent the check."""
    try:
        return path.exists()
    except OSError as error:
        text = f"cannot access {path}: {error.strerror}"
        raise SpecError(text, hint=access_hint(error)) from error


def suggest_path(path: Path) -> str:
    """Return a hint that names the existing path closest to a missing one; empty if none."""
    folder = next((candidate for candidate in path.parents if candidate.is_dir()), None)
    if folder is None:
        return ""
    missing_name, *tail = path.parts[len(folder.parts) :]
    try:
        similar = get_close_matches(missing_name, os.listdir(folder))
    except OSError:
        return ""
    candidates = (folder.joinpath(name, *tail) for name in similar)
    existing = next((str(candidate) for candidate in candidates if candidate.exists()), None)
    return f"did you mean {existing!r}?" if existing else ""


def refuse_unknown_keys(table: str, keys: Iterable[str], allowed: Sequence[str]) -> None:
    """Refuse keys of ``table`` that are not allowed, and name the nearest allowed one."""
    for key in keys:
        if key not in allowed:
            hint = suggest_name(key, allowed) or f"known are: {', '.join(allowed)}"
            raise SpecError(f"{table} has no key {shown(key)}", hint=hint)


def check_integer(
    name: str, value: Any, *, minimum: int, maximum: int = INT32_MAX, example: int = 1
) -> None:
    """Refuse a value that is not a whole number in range."""
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
        raise SpecError(
            f"{name} must be a whole number from {minimum} to {maximum:,}, got {shown(value)}",
            # The name may begin with a table: in "[launcher] warning", the key comes last.
            hint=_example(name.split()[-1], max(minimum, example)),
        )


def check_positive(
    name: str, value: Any, *, example: float, maximum: float = float_info.max
) -> None:
    """Refuse a value that is not a finite number above 0, up to a maximum."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not 0 < value <= maximum:
        is_too_large = is_number and maximum < value <= float_info.max
        rule = f"at most {maximum:g}" if is_too_large else "a number above 0"
        raise SpecError(f"{name} must be {rule}, got {shown(value)}", hint=_example(name, example))


def check_type(name: str, value: Any, kind: type | tuple[type, ...], description: str) -> None:
    """Refuse a value that is not of type ``kind``; the error says ``description`` for the type."""
    if not isinstance(value, kind):
        raise SpecError(
            f"{name} must be {description}, got {shown(value)}", hint=_type_hint(name, kind)
        )


def _type_hint(name: str, kind: type | tuple[type, ...]) -> str:
    """Return how a value of a type is written in a study file."""
    examples = {str: '"text"', bool: "true", int: "1", list: "[1, 2]", tuple: "[1, 2]"}
    example = examples.get(kind[0] if isinstance(kind, tuple) else kind, "{key = 1}")
    key = name.split()[-1]
    return f"for example {key} = {example}" if key.isidentifier() else f"write {example}"


def check_choice(name: str, value: Any, allowed: Sequence[str]) -> None:
    """Refuse a value that is not one of the allowed ones."""
    if value not in allowed:
        raise SpecError(
            f"{name} must be one of {', '.join(allowed)}, got {shown(value)}",
            hint=suggest_name(value, allowed) or _example(name.split()[-1], allowed[0]),
        )


def check_environment_name(setting: str, name: Any) -> None:
    """Refuse an invalid name of an environment variable, which a shell might execute.

    >>> check_environment_name("env", "A;touch x")
    Traceback (most recent call last):
    scalewise.errors.SpecError: env: 'A;touch x' is not the name of an environment variable
    """
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise SpecError(
            f"{setting}: {shown(name)} is not the name of an environment variable",
            hint="use letters, digits and _, and no digit first",
        )


def check_process_text(name: str, text: str) -> None:
    """Refuse a text that no process can be given as an argument or a variable.

    >>> check_process_text("env A", "a\\0b")
    Traceback (most recent call last):
    scalewise.errors.SpecError: env A cannot hold a null character, got 'a\\x00b'
    """
    problem = "a null character" if "\0" in text else ""
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        problem = "half of a surrogate pair"
    if problem:
        raise SpecError(f"{name} cannot hold {problem}, got {shown(text)}", hint="leave it out")


def _example(name: str, value: float | str) -> str:
    """Return an example of valid input: a study setting, a Python parameter or an option.

    >>> _example("batch", 1), _example("batch=", 1), _example("--augment", "none")
    ('for example batch = 1', 'for example batch=1', 'for example --augment none')
    """
    if name.startswith("--"):
        return f"for example {name} {value}"
    if name.endswith("="):
        return f"for example {name}{value!r}"
    return f"for example {name} = {json.dumps(value)}"
