"""Guards: checks that notice what silently ruins scaling.

A guard is one decorated function in ``correctness`` or ``tuning``: its name, the facts it
reads, its condition, its sentence and its hint. All guards of these modules run, in the
order in which they are declared. A new fact is recorded in ``scalewise.watch``.
"""

from collections.abc import Iterable, Sequence

from scalewise.analysis.explain.guards import correctness, tuning
from scalewise.analysis.explain.guards.guard import Finding, Guard, watched_runs
from scalewise.record.read import RunRecord

GUARDS: tuple[Guard, ...] = tuple(
    value
    for module in (correctness, tuning)
    for value in vars(module).values()
    if isinstance(value, Guard)
)


def run_guards(records: Sequence[RunRecord]) -> tuple[Finding, ...] | None:
    """Return the findings in the runs of a curve; None where no facts were recorded."""
    return _findings(GUARDS, records) if watched_runs(records) else None


def correctness_faults(records: Sequence[RunRecord]) -> tuple[Finding, ...]:
    """Return the findings that make the training of these runs incorrect.

    A finding that is only a question is not among them.
    """
    faults = (guard for guard in GUARDS if guard.kind == "correct" and not guard.question)
    return _findings(faults, records)


def _findings(guards: Iterable[Guard], records: Sequence[RunRecord]) -> tuple[Finding, ...]:
    runs = watched_runs(records)
    return tuple(finding for guard in guards if (finding := guard.first_finding(runs)))
