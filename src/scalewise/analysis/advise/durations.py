"""Parse numbers and durations as users write them."""

import re

from scalewise.errors import SpecError, shown

NUMBER = r"([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[-+]?[0-9]+)?)"
"""Regular expression of a number, with one group. Unlike float() it refuses nan, inf and 1_000."""
SECONDS_PER_UNIT = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
MIN_SECONDS, MAX_SECONDS = 1e-6, 1e12
"""Durations outside this range are refused as typing errors."""


def parse_duration(text: str, argument: str, example: str) -> float:
    """Return the seconds of ``2h``, ``90min`` or ``1h30m``. Errors quote ``argument``."""
    part = rf"{NUMBER}\s*(s|min|m|h|d)\s*"
    if not re.fullmatch(f"(?:{part})+", text):
        raise SpecError(
            f"not a time span: {shown(argument)}", hint=f"a number and s, min, h or d: {example}"
        )
    return sum(float(number) * SECONDS_PER_UNIT[unit] for number, unit in re.findall(part, text))


def parse_limited_duration(
    argument: object, example: str, *, text: str | None = None, allow_zero: bool = False
) -> float:
    """Return seconds within the limits. If ``argument`` has other parts, ``text`` is the duration.

    >>> parse_limited_duration("3min", "for example 3min")
    180.0
    """
    if not isinstance(argument, str):
        raise SpecError(f"a time span is text, got {shown(argument)}", hint=example)
    seconds = parse_duration(argument if text is None else text, argument, example)
    if MIN_SECONDS <= seconds <= MAX_SECONDS or (allow_zero and seconds == 0):
        return seconds
    lowest = "at least 0" if allow_zero else "above 0"
    problem = f"a time span must be {lowest} and at most {MAX_SECONDS:g} s, got {shown(argument)}"
    raise SpecError(problem, hint=example)
