"""Time spans as people write them, within what a job can mean by them."""

from scalewise.analysis.advise.purpose import duration
from scalewise.errors import SpecError

SHORTEST, LONGEST = 1e-6, 1e12
"""Seconds; whoever writes less or more has slipped."""


def span(given: object, example: str, *, part: str | None = None, zero: bool = False) -> float:
    """Read ``30s`` or ``1h30m``, in seconds; ``part`` is the span in a longer text.

    >>> span("3min", "--restart 3min")
    180.0
    """
    if not isinstance(given, str):
        raise SpecError(f"a time span is text, got {given!r}", hint=example)
    found = duration(given, given if part is None else part, example)
    if SHORTEST <= found <= LONGEST or (zero and found == 0):
        return found
    least = "0" if zero else "above 0"
    raise SpecError(
        f"a time span from {least} to {LONGEST:g} s is needed, got {given!r}", hint=example
    )
