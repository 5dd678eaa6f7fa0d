"""The verb ``compare``: two results, or a history of more, and conditions for CI."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from scalewise.cli.output import print_sections, say
from scalewise.cli.predict_modes import parse_counts
from scalewise.errors import ConditionShown, SpecError

if TYPE_CHECKING:
    from scalewise.analysis.compare import Comparison, Condition


def compare(  # noqa: PLR0913 - one parameter per option
    sources: Sequence[Path],
    *,
    fail_if: Sequence[str],
    difference: str,
    at: str | None,
    where: Mapping[str, str],
    despite: Sequence[str],
    all_columns: bool,
    as_json: bool,
) -> None:
    """Compare results, print the answer, then judge the conditions of ``--fail-if``."""
    from scalewise import results
    from scalewise.analysis.compare import (
        Condition,
        compare_sources,
        parse_difference,
        trend_of_sources,
    )
    from scalewise.report import compare_sections, trend_sections
    from scalewise.report.text.compare import refuse_doubtful_sides
    from scalewise.report.text.doubts import naming_left_out

    conditions = [Condition.parse(text) for text in fail_if]
    wanted = parse_difference(difference)
    counts = parse_counts(at) if at is not None else ()
    if len(sources) == 2:
        results.refuse_same_source(sources)
    loaded = [results.comparison_sides(source) for source in sources]
    all_sides = [side for sides in loaded for side in sides]
    refuse_doubtful_sides(all_sides, despite)
    doubts = [doubt for side in all_sides for doubt in side.doubts]
    if len(sources) > 2:
        if conditions:
            problem = "--fail-if compares two results"
            raise SpecError(problem, hint="name the earlier one, then the later one")
        with naming_left_out(doubts):
            trend = trend_of_sources(loaded, where, at=counts)
        if as_json:
            typer.echo(trend_sections.as_json(trend))
        else:
            print_sections(trend_sections.sections(trend), all_columns=all_columns)
        return
    with naming_left_out(doubts):
        comparisons = compare_sources(loaded, where, wanted=wanted, at=counts)
    if as_json:
        typer.echo(compare_sections.as_json(comparisons))
    else:
        sections = [part for item in comparisons for part in compare_sections.sections(item)]
        print_sections(sections, all_columns=all_columns)
    if conditions:
        _judge(comparisons, conditions)


def _judge(comparisons: Sequence["Comparison"], conditions: Sequence["Condition"]) -> None:
    """Say on stderr what conditions are shown or cannot be told; raise if one is shown."""
    from scalewise.analysis.compare import check_conditions
    from scalewise.report.text.compare import condition_sentence

    judged = check_conditions(comparisons, conditions)
    for result in judged:
        if result.outcome == "cannot tell":
            say(condition_sentence(result), err=True)
    shown = [condition_sentence(result) for result in judged if result.outcome == "shown"]
    if shown:
        raise ConditionShown(" ".join(shown))
