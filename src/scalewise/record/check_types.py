"""Check the values of a JSON line or file against the dataclass that declares them."""

import math
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

MAX_INTEGER = 2**64
"""Seeds and digests are whole numbers below this one."""
MAX_COUNT = 2**53
"""Whole numbers up to here are exact in every reader of JSON."""

Check = Callable[[Any], bool]


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number."""
    kind = type(value)
    return (kind is float and math.isfinite(value)) or (kind is int and abs(value) < MAX_COUNT)


def is_count(value: Any) -> bool:
    """Return whether a value is a whole number that is not negative."""
    return type(value) is int and 0 <= value < MAX_COUNT


def wrong_key(
    kind: type, values: Mapping[str, Any], *, all_keys: bool = False, finite: bool = True
) -> str:
    """Return the key of the first value that is not of its field's type; empty if there is none.

    Unknown keys may have any value. With ``all_keys``, a key may be missing only if its field has a
    default or may be None. Unless ``finite``, numbers may be NaN or infinite.

    >>> from scalewise.record.schema import Stall
    >>> wrong_key(Stall, {"seconds": "10", "span": None}), wrong_key(Stall, {"new": ()})
    ('seconds', '')
    """
    for key, required, fits in _checks(kind, finite):
        if key in values:
            if not fits(values[key]):
                return key
        elif all_keys and required:
            return key
    return ""


@cache
def _checks(kind: Any, finite: bool) -> tuple[tuple[str, bool, Check], ...]:
    """Return each field of a dataclass: its key, whether it must be there, and its check."""
    hints = get_type_hints(kind)
    return tuple(
        (
            item.metadata.get("key", item.name),
            item.default is MISSING
            and item.default_factory is MISSING
            and not _check(hints[item.name], finite)(None),
            _check(hints[item.name], finite),
        )
        for item in fields(kind)
    )


def _check(hint: Any, finite: bool) -> Check:
    """Return a function that says whether a value is of the type that a hint describes."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return lambda value: True
    if hint is float:
        return is_number if finite else lambda value: type(value) in (int, float)
    if hint is int:
        return lambda value: type(value) is int and abs(value) < MAX_INTEGER
    if isinstance(hint, type) and is_dataclass(hint):
        return lambda value: (
            isinstance(value, dict) and not wrong_key(hint, value, all_keys=True, finite=finite)
        )
    if origin in (Union, types.UnionType):
        checks = [_check(part, finite) for part in args]
        return lambda value: any(fits(value) for fits in checks)
    if origin is Literal:
        return lambda value: value in args
    if origin is tuple and args[-1] is not Ellipsis:
        parts = [_check(part, finite) for part in args]
        return lambda value: (
            isinstance(value, list)
            and len(value) == len(parts)
            and all(fits(part) for fits, part in zip(parts, value, strict=True))
        )
    if origin in (tuple, Sequence):
        item = _check(args[0], finite)
        return lambda value: isinstance(value, list) and all(map(item, value))
    if origin is Mapping:
        item = _check(args[1], finite)
        return lambda value: isinstance(value, dict) and all(map(item, value.values()))
    return lambda value: type(value) is hint
