"""Check plain values: a wrong one is refused in a sentence that holds it."""

import json
import os
import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from sys import float_info
from typing import Any

from scalewise.errors import SpecError

INT32_MAX = 2**31 - 1


def suggest_name(name: object, known: Iterable[str]) -> str:
    """Return a hint that names the known word closest to ``name``, or nothing.

    Among close ones it is rather one with the same letters, which were only mixed up.

    >>> nearest("vit-h41", ["vit-h14", "vit-h16"])
    "did you mean 'vit-h14'?"
    """
    near = get_close_matches(str(name), list(known))
    mixed = [each for each in near if sorted(each) == sorted(str(name))]
    return f"did you mean {(mixed or near)[0]!r}?" if near else ""


PERMISSION_HINT = "`ls -ld` on it and on the folders above says who may read it"
"""The hint for what is there and closed."""


def path_exists(path: Path) -> bool:
    """Say whether a path is there; refuse one that we may not ask about."""
    try:
        return path.exists()
    except OSError as why:
        raise SpecError(f"cannot look at {path}: {why.strerror}", hint=PERMISSION_HINT) from why


def suggest_path(path: Path) -> str:
    """Return a hint that names what lies closest to a path that leads to nothing, or nothing."""
    there = next((each for each in path.parents if each.is_dir()), None)
    if there is None:
        return ""
    missing, *rest = path.parts[len(there.parts) :]
    try:
        near = get_close_matches(missing, os.listdir(there))
    except OSError:
        return ""
    check_integer = [
        each for each in (there.joinpath(name, *rest) for name in near) if each.exists()
    ]
    return f"did you mean {str(check_integer[0])!r}?" if check_integer else ""


def refuse_unknown_keys(what: str, given: Iterable[str], known: Sequence[str]) -> None:
    """Refuse a key that means nothing, and name the nearest that does."""
    for key in given:
        if key not in known:
            hint = suggest_name(key, known) or f"known are: {', '.join(known)}"
            raise SpecError(f"{what} has no key {key!r}", hint=hint)


def check_integer(
    name: str, value: Any, *, minimum: int, maximum: int = INT32_MAX, example: int = 1
) -> None:
    """Refuse what is not a whole number in range."""
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
        raise SpecError(
            f"{name} must be a whole number from {minimum} to {maximum:,}, got {value!r}",
            hint=_example(name.split()[-1], max(minimum, example)),
        )


def check_positive(name: str, value: Any, *, example: float) -> None:
    """Refuse what is not a finite number above 0."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 < value <= float_info.max:
        hint = _example(name, example)
        raise SpecError(f"{name} must be a number above 0, got {value!r}", hint=hint)


def check_type(name: str, value: Any, kind: type | tuple[type, ...], says: str) -> None:
    """Refuse what is of another type."""
    if not isinstance(value, kind):
        raise SpecError(f"{name} must be {says}, got {value!r}")


def check_choice(name: str, value: Any, allowed: Sequence[str]) -> None:
    """Refuse what is not one of the allowed words."""
    if value not in allowed:
        raise SpecError(
            f"{name} must be one of {', '.join(allowed)}, got {value!r}",
            hint=suggest_name(value, allowed) or _example(name.split()[-1], allowed[0]),
        )


def check_environment_name(where: str, name: Any) -> None:
    """Refuse what is not the name of an environment variable: a shell would run the rest of it.

    >>> environment_name("env", "A;touch x")
    Traceback (most recent call last):
    scalewise.errors.SpecError: env: 'A;touch x' is not the name of an environment variable
    """
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise SpecError(
            f"{where}: {name!r} is not the name of an environment variable",
            hint="use letters, digits and _, and no digit first",
        )


def _example(name: str, value: float | str) -> str:
    """Return what to type: a setting of a study, or an option of the command line.

    >>> _example("batch", 1), _example("--augment", "none")
    ('for example batch = 1', 'for example --augment none')
    """
    if name.startswith("--"):
        return f"for example {name} {value}"
    return f"for example {name} = {json.dumps(value)}"
