"""Guards: checks for faults that silently ruin training or scaling. Each is a decorated function
in ``correctness`` or ``tuning`` whose docstring names the fault. They check facts of a user's
program that ``scalewise.watch`` records, in the order in which they are defined.
"""

from collections.abc import Sequence

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
    """Return the findings in the runs of a curve; None if no facts were recorded."""
    runs = watched_runs(records)
    findings = (guard.first_finding(runs) for guard in GUARDS)
    return tuple(finding for finding in findings if finding) if runs else None


def correctness_faults(records: Sequence[RunRecord]) -> tuple[Finding, ...]:
    """Return the findings that make training incorrect, without those that may be intended."""
    findings = run_guards(records) or ()
    return tuple(fault for fault in findings if fault.kind == "correct" and not fault.question)
