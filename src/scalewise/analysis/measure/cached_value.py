"""Values computed once from a run's steps: kept in its record, and in ``cache.json`` beside it.

``@cached_value("name")`` above a function of a record does both. The function's return type says
how the value is read from JSON: numbers, texts, dataclasses, tuples, lists, mappings, arrays.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache, wraps
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from scalewise.errors import ScalewiseError
from scalewise.record.node_samples import NodeRecord, RunNodes
from scalewise.record.read import RunRecord

Value = TypeVar("Value")
NodeFunction = Callable[[RunRecord, Sequence[NodeRecord]], Value]
_ARRAY = get_origin(NDArray[np.float64])
"""``NDArray[T]`` is ``ndarray[…, dtype[T]]``; since NumPy 2.5 it is an alias of its own."""
FUNCTIONS: dict[str, Callable[[RunRecord], Any]] = {}
"""Every function whose value is cached, by name."""


def cached_value(
    name: str,
) -> Callable[[Callable[[RunRecord], Value]], Callable[[RunRecord], Value]]:
    """Return a decorator: a record's value is computed once, and must not be changed."""

    def decorate(compute: Callable[[RunRecord], Value]) -> Callable[[RunRecord], Value]:
        @wraps(compute)
        def value_of(record: RunRecord) -> Value:
            if name not in record.values:
                record.values[name] = compute(record)
            value: Value = record.values[name]
            return value

        FUNCTIONS[name] = value_of
        return value_of

    return decorate


def cached_node_value(
    name: str,
) -> Callable[[NodeFunction[Value]], NodeFunction[Value]]:
    """Return a decorator as ``cached_value``, for functions of a record and its node samples. Only
    with the samples that lie beside the run (``RunNodes``) is the value cached.
    """

    def decorate(compute: NodeFunction[Value]) -> NodeFunction[Value]:
        @wraps(compute)
        def value_of(record: RunRecord, nodes: Sequence[NodeRecord]) -> Value:
            if not isinstance(nodes, RunNodes):
                return compute(record, nodes)
            if name not in record.values:
                record.values[name] = compute(record, nodes)
            value: Value = record.values[name]
            return value

        @wraps(compute)
        def of_own_nodes(record: RunRecord) -> Value:
            return value_of(record, RunNodes(record))

        FUNCTIONS[name] = of_own_nodes
        return value_of

    return decorate


def compute_values(record: RunRecord) -> dict[str, Any]:
    """Return all cached values of a run, by name. A value that cannot be computed is left out:
    who needs it computes it again, and gets the error.
    """
    values = {}
    for name, value_of in FUNCTIONS.items():
        try:
            values[name] = value_of(record)
        except (ScalewiseError, ArithmeticError, LookupError, TypeError, ValueError):
            continue
    return values


def to_json(value: Any) -> Any:
    """Return a cached value as JSON values."""
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: to_json(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: to_json(each) for key, each in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_json(each) for each in value]
    return value


def from_json(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cached values that ``to_json`` has written, by name; unknown names are ignored."""
    return {
        name: _decode(_hints(FUNCTIONS[name])["return"], value)
        for name, value in values.items()
        if name in FUNCTIONS
    }


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _decode(kind: Any, value: Any) -> Any:
    """Return a JSON value as a ``kind``."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        if value is None:
            return None
        return _decode(next(each for each in inner if each is not type(None)), value)
    if isinstance(kind, type) and is_dataclass(kind):
        hints = _hints(kind)
        return kind(**{name: _decode(hints[name], each) for name, each in value.items()})
    if origin is _ARRAY:
        return np.array(value, dtype=(get_args(inner[-1]) or inner)[0])
    if origin is tuple:
        return _decode_tuple(inner, value)
    if origin is list or origin is Sequence:
        return value if inner[0] in _PLAIN else [_decode(inner[0], part) for part in value]
    if origin is dict or origin is Mapping:
        return {key: _decode(inner[1], part) for key, part in value.items()}
    return value


def _decode_tuple(kinds: Sequence[Any], value: Sequence[Any]) -> tuple[Any, ...]:
    """Return a JSON list as a tuple with parts of these kinds; ``(kind, ...)``: all of one."""
    if all(kind in _PLAIN or kind is Ellipsis for kind in kinds):
        return tuple(value)
    if kinds[-1] is Ellipsis:
        return tuple(_decode(kinds[0], part) for part in value)
    return tuple(_decode(kind, part) for kind, part in zip(kinds, value, strict=True))


_PLAIN = (int, float, str, bool, float | None)
"""Types that JSON has; a sequence of them need not be decoded one by one."""
