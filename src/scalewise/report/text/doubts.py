"""Warnings as sentences; a doubt is a reason to trust a result less."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from scalewise.analysis.measure import Doubt, ScalingCurve
from scalewise.analysis.measure.doubt import DoubtKind
from scalewise.analysis.number_format import format_count
from scalewise.record.schema import skipped_sentence

NO_PHASES = "the steps of this point, or of the baseline, were recorded without phases"
"""Why it is unknown where the time of a step goes."""


def warning_text(warning: str | Doubt) -> str:
    """Return a warning as a sentence.

    >>> warning_text(Doubt("few steps", {"count": 8}))
    'only 8 steady steps: the rate is rough'
    """
    if isinstance(warning, str):
        return warning
    text = DOUBT_TEXT[warning.kind]
    return text.format(**warning.figures) if isinstance(text, str) else text(**warning.figures)


def with_warning_texts(curve: ScalingCurve) -> ScalingCurve:
    """Return a curve whose warnings are sentences."""
    points = [
        replace(point, warnings=tuple(map(warning_text, point.warnings))) for point in curve.points
    ]
    warnings = tuple(map(warning_text, curve.warnings))
    return replace(curve, points=tuple(points), warnings=warnings)


def _make_difference_text(subject: str) -> Callable[..., str]:
    def text_of(name: str, values: Sequence[str]) -> str:
        return f"{subject} differ in {name}: {', '.join(values)}"

    return text_of


def _work_differs(samples: int | None, baseline: int | None) -> str:
    total, baseline_total = (
        "an unknown number of" if count is None else f"{count:,}" for count in (samples, baseline)
    )
    return f"{total} samples in all, and {baseline_total} at the baseline: times are not compared"


DOUBT_TEXT: Mapping[DoubtKind, str | Callable[..., str]] = {
    "few steps": lambda count: f"only {format_count(count, 'steady step')}: the rate is rough",
    "few batches": lambda count: (
        f"only {count} batch{'' if count == 1 else 'es'} per rank and epoch"
    ),
    "rehearsed": lambda nodes, hosts: f"{nodes} nodes rehearsed on {format_count(hosts, 'host')}",
    "resumed": lambda step, rate_only: (
        f"resumed after step {step:,}: {'its rate is' if rate_only else 'times are'} only of the "
        "last attempt"
    ),
    "skipped files": lambda by_rank: skipped_sentence(by_rank),
    "loss not finite": "the final loss is not a number: the accuracy is meaningless",
    "overloaded": lambda host, share: (
        f"host {host} was overloaded: other processes used {100 * share:.0f} % of its CPU; "
        "times are unreliable"
    ),
    "work differs": _work_differs,
    "accuracy differs": "validation accuracy {accuracy:.1%} differs from the baseline's "
    "{baseline:.1%} by more than its spread ({spread:.1%})",
    "other device": "{device} is compared with {baseline}: this is acceleration, not efficiency",
    "runs differ": _make_difference_text("runs of this curve"),
    "baseline missing": "the run on {missing} is missing: compared with {used} devices",
    "curves differ": _make_difference_text("these curves"),
    "operations not counted": "operations were not counted: {reason}",
    "no peak of a CPU": "the catalog has no peak for a CPU",
    "unlisted device": "the catalog has no device named {device!r}",
    "unlisted precision": "the catalog has no peak of {device} in {precision}",
    "no phases": f"no causes are known: {NO_PHASES}",
    "fused step": "one process has several devices, and its step is fused: transfer and balance "
    "are unknown, and their time is in computation",
    "transfer unknown": "communication was not measured separately from computation (`sync` is "
    "missing): transfer is unknown, and its time is in computation or balance",
    "clock off": lambda host, ahead: (
        f"the clock of {host} is {abs(ahead):.2f} s {'ahead of' if ahead > 0 else 'behind'} the "
        "first node's: parts of the complete time that begin on one node and end on another are "
        "off by as much"
    ),
}
"""By kind of doubt: a format string, or a function that is called with the figures of the doubt."""
