"""Choose which curves of two sources are compared with each other."""

from collections.abc import Mapping, Sequence
from typing import Any

from scalewise.analysis.compare.side import Side
from scalewise.errors import SpecError, parameter


def match_sides(
    first: Sequence[Side], second: Sequence[Side], where: Mapping[str, Any] | None = None
) -> list[tuple[Side, Side]]:
    """Return the pairs to compare: curves with the same settings, or the only curve of each."""
    first, second = with_settings(first, where), with_settings(second, where)
    pairs = [(a, b) for a in first for b in second if _settings(a) == _settings(b)]
    if pairs:
        return pairs
    if len(first) == len(second) == 1:
        return [(first[0], second[0])]
    raise SpecError(
        f"no curve of {first[0].source} has the settings of a curve of {second[0].source}",
        hint=f"choose one of each with {parameter('where')}: "
        + "; ".join(side.curve.name for side in (*first, *second)),
    )


def split_source(
    sides: Sequence[Side], where: Mapping[str, Any] | None = None
) -> tuple[Side, Side]:
    """Return the two curves of a single source, which are compared with each other."""
    chosen = with_settings(sides, where)
    if len(chosen) == 2:
        return chosen[0], chosen[1]
    names = "; ".join(side.curve.name for side in chosen)
    raise SpecError(
        f"compare needs two results, and {chosen[0].source} has {len(chosen)}: {names}",
        hint="name two study folders, run folders or tables"
        if len(chosen) == 1
        else f"choose two of them with {parameter('where')}",
    )


def one_side(sides: Sequence[Side], where: Mapping[str, Any] | None = None) -> Side:
    """Return the only curve of a source."""
    chosen = with_settings(sides, where)
    if len(chosen) > 1:
        raise SpecError(
            f"{chosen[0].source} has {len(chosen)} curves",
            hint=f"choose one with {parameter('where')}: "
            + "; ".join(side.curve.name for side in chosen),
        )
    return chosen[0]


def with_settings(sides: Sequence[Side], where: Mapping[str, Any] | None) -> list[Side]:
    """Return the curves with these settings; a source that does not vary one keeps its curves."""
    chosen = [
        side
        for side in sides
        if all(
            str(side.curve.where.get(key, value)) == str(value)
            for key, value in (where or {}).items()
        )
    ]
    if not chosen:
        names = "; ".join(side.curve.name for side in sides)
        raise SpecError(
            f"no curve of {sides[0].source} matches {dict(where or {})}",
            hint=f"choose one with {parameter('where')}: {names}",
        )
    return chosen


def _settings(side: Side) -> dict[str, str]:
    """Return the settings of a curve as text, because 1 == True == 1.0."""
    return {key: str(value) for key, value in side.curve.where.items()}
