"""Doubts (reasons to trust a result less) as sentences, and what to do about each."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, get_args

from scalewise.analysis.measure import Doubt, ScalingCurve
from scalewise.analysis.measure.doubt import Blocking, DoubtKind, code_of
from scalewise.analysis.number_format import (
    format_count,
    format_number,
    format_seconds,
    list_counts,
)
from scalewise.errors import DoubtfulData, NotEnoughData, SpecError, parameter, shown
from scalewise.record import batch_sharing
from scalewise.record.schema import skipped_sentence
from scalewise.report.text.certificate import fix_text, verdict_text
from scalewise.validate import suggest_name

NO_PHASES = "the steps of this point, or of the baseline, were recorded without phases"
"""Why it is unknown where the time of a step goes."""
MAX_ALERTS = 3
"""So many kinds of doubts are shown before an answer; of the others only the codes."""


def warning_text(warning: str | Doubt) -> str:
    """Return a warning as a sentence.

    >>> warning_text(Doubt("few steps", {"count": 8}))
    'only 8 steady steps: the rate is rough'
    """
    if isinstance(warning, str):
        return warning
    text = DOUBT_TEXT[warning.kind]
    return text.format(**warning.figures) if isinstance(text, str) else text(**warning.figures)


def mend_text(doubt: Doubt) -> str:
    """Return what to do about a doubt; empty if nothing needs to be done."""
    text = MENDS.get(doubt.kind, "")
    return text.format(**doubt.figures) if isinstance(text, str) else text(**doubt.figures)


def doubt_sentence(doubt: Doubt) -> str:
    """Return a doubt as a sentence that names its point."""
    text = warning_text(doubt)
    names_point = doubt.figures.keys() & {"says", "topology", "predicted"}
    if doubt.devices and not names_point:
        text = f"{format_count(doubt.devices, 'device')}: {text}"
    return text


def alert_lines(doubts: Iterable[Doubt], *, fixes: bool = True) -> list[str]:
    """Return the lines to show before an answer: doubts that block or weaken it, with fixes."""
    by_kind: dict[str, list[Doubt]] = {}
    for doubt in doubts:
        if doubt.severity != "notes":
            by_kind.setdefault(doubt.kind, []).append(doubt)
    lines = []
    for first, *others in [*by_kind.values()][:MAX_ALERTS]:
        label = "Not reliable" if first.severity == "blocks" else "Doubtful"
        more = f" (and {len(others)} more like this)" if others else ""
        lines.append(f"{label} [{first.code}]: {doubt_sentence(first)}{more}")
        if fixes and (mend := mend_text(first)):
            lines.append(f"  fix: {mend}")
    if hidden := [*by_kind][MAX_ALERTS:]:
        lines.append(f"Also: {', '.join(map(code_of, hidden))} (the JSON output has the details)")
    return lines


def first_alerts(named: Sequence[tuple[str, Sequence[Doubt]]]) -> tuple[str, ...]:
    """Return a line about each of the first curves that have serious doubts, blocked ones first,
    and how many others have some. ``named`` are names of curves with their doubts.
    """
    rows = [(name, doubts, lines[0]) for name, doubts in named if (lines := alert_lines(doubts))]
    rows.sort(key=lambda row: all(doubt.severity != "blocks" for doubt in row[1]))  # Stable.
    lines = [f"{name}: {line}" for name, _, line in rows[:MAX_ALERTS]]
    others = len(rows) - MAX_ALERTS
    return (*lines, f"Also doubtful: {others} more") if others > 0 else tuple(lines)


def doubt_values(doubts: Iterable[Doubt]) -> list[dict[str, Any]]:
    """Return doubts as values for JSON."""
    return [
        {
            "code": doubt.code,
            "severity": doubt.severity,
            "devices": doubt.devices,
            "text": warning_text(doubt),
            "mend": mend_text(doubt) or None,
        }
        for doubt in doubts
    ]


def refuse_blocking(verb: str, doubts: Iterable[Doubt], despite: Sequence[str] = ()) -> None:
    """Raise DoubtfulData if a doubt blocks the answer and its code is not in ``despite``."""
    codes = {code_of(kind): kind for kind in get_args(Blocking)}
    for code in despite:
        if code not in codes:
            raise SpecError(
                f"{parameter('despite')} takes the code of a blocking doubt, got {shown(code)}",
                hint=suggest_name(code, codes) or f"one of {', '.join(codes)}",
            )
    blocking = [
        doubt for doubt in doubts if doubt.severity == "blocks" and doubt.code not in despite
    ]
    if blocking:
        first = blocking[0]
        others = [doubt.code for doubt in blocking[1:] if doubt.code != first.code]
        also = f" (also: {', '.join(dict.fromkeys(others))})" if others else ""
        example = parameter("despite", first.code)
        raise DoubtfulData(
            f"{verb} gives no answer [{first.code}]: {doubt_sentence(first)}{also}",
            hint=f"{mend_text(first).rstrip('.')}; or insist with {example}",
        )


@contextmanager
def naming_left_out(doubts: Iterable[Doubt]) -> Iterator[None]:
    """If the block has not enough data, and a run was left out, say so in the error."""
    try:
        yield
    except NotEnoughData as error:
        left_out = next((doubt for doubt in doubts if doubt.kind == "left out"), None)
        if left_out is None:
            raise
        hint = mend_text(left_out) or error.hint
        raise NotEnoughData(f"{error}; {doubt_sentence(left_out)}", hint=hint) from error


def note_texts(warnings: Iterable[str | Doubt]) -> list[str]:
    """Return warnings as sentences, without the doubts that ``alert_lines`` shows first."""
    return [
        warning if isinstance(warning, str) else doubt_sentence(warning)
        for warning in warnings
        if isinstance(warning, str) or warning.severity == "notes"
    ]


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


def _ratio_text(role: str, value: float) -> str:
    return f"{100 * value:.0f} %" if role == "efficiency" else f"{value:.2f} ×"


def _outlier(metric: str, measured: float, expected: float, law: str, unit: str) -> str:
    return (
        f"{format_number(measured)} {unit} is not explained by the other rows: {law or 'they'} "
        f"predict{'s' if law else ''} {format_number(expected)} {unit}"
    )


def _high_efficiency(efficiency: float, reference: int) -> str:
    return (
        f"efficiency is {100 * efficiency:,.0f} % relative to {format_count(reference)}: more "
        "than noise and caches explain"
    )


def _check_row(reference: int, **_: Any) -> str:
    points = f"this point and that of {format_count(reference)}"
    return f"check {points}: a typing error, other units or other work"


def _partly_filled_nodes(per_node: int, counts: Sequence[int]) -> str:
    first = counts[0]
    return (
        f"{list_counts(counts)} devices do not fill nodes of {per_node:,}: all nodes but the last "
        f"are taken as full ({first:,} devices: {-(-first // per_node):,} nodes, the last with "
        f"{first % per_node:,})"
    )


def _steps_unaccounted(recorded: int, updates: int, rank: int, *, apart: bool = False) -> str:
    if apart:
        return (
            f"{recorded:,} steps of rank {rank} were recorded, and several optimizers stepped in "
            f"each: if each step that had a batch of its own is one, there were {updates:,}"
        )
    return (
        f"{format_count(recorded, 'step')} of rank {rank} {'was' if recorded == 1 else 'were'} "
        f"recorded, but its weights were updated {updates:,} times: steps are missing"
        if recorded < updates
        else f"{recorded:,} steps of rank {rank} were recorded, but its optimizers took only "
        f"{updates:,}: some were counted twice"
    )


def _samples_unaccounted(credited: int, given: int, rank: int, first: int = 0) -> str:
    if first:
        return (
            f"the first step of rank {rank} has {first:,} samples, more than any other: if a batch "
            f"was fetched before the training and not trained on, {given:,} samples are right, not "
            f"{credited:,}"
        )
    if credited < given:
        return (
            f"the steps of rank {rank} have {credited:,} samples, but the loaders gave at least "
            f"{given:,} for training: the throughput in samples is too low"
        )
    return (
        f"the steps of rank {rank} have {credited:,} samples, but the loaders gave only {given:,}: "
        "a sample that is used in several steps may count several times"
    )


def _state_samples(**_: Any) -> str:
    return (
        f"give {parameter('samples_per_step')}, the samples that one rank takes per step, or call "
        "`probe.step(samples=…)` in the program"
    )


DoubtText = str | Callable[..., str]
"""A format string, or a function that is called with the figures of the doubt."""
GUARDED_KINDS: tuple[DoubtKind, ...] = (
    "no exchange", "same samples", "lost samples", "repeated samples", "drift", "step counts",
    "set_epoch",
)  # fmt: skip
"""Kinds whose sentence and hint come from a guard."""
DOUBT_TEXT: Mapping[DoubtKind, DoubtText] = {
    **dict.fromkeys(
        GUARDED_KINDS,
        lambda says, hint: says,
    ),
    "training differs": lambda certificate: (
        f"the training is not that of 1 device: it {verdict_text(certificate)}"
    ),
    "not certified": lambda certificate: (
        f"whether the training is that of 1 device: {verdict_text(certificate)}"
    ),
    "implausible efficiency": _high_efficiency,
    "superlinear": _high_efficiency,
    "impossible time": lambda time, needed: (
        f"{format_seconds(time)} is too short: at the measured throughput the samples take "
        f"{format_seconds(needed)}"
    ),
    "time disagrees": lambda time, expected: (
        f"{format_seconds(time)} does not go with the throughput of this row: by the other rows "
        f"it would be {format_seconds(expected)}"
    ),
    "outlier": _outlier,
    "small outlier": _outlier,
    "not steady": lambda drift: (
        f"steps became {100 * abs(drift):.0f} % {'slower' if drift > 0 else 'faster'} while they "
        "were measured: the steady state was not reached"
    ),
    "samples unknown": "the samples of a step were not seen: rates are steps per second, and "
    "efficiency holds only if the global batch is the same on all numbers of devices",
    "steps unaccounted": _steps_unaccounted,
    "some steps unaccounted": _steps_unaccounted,
    "samples unaccounted": _samples_unaccounted,
    "some samples unaccounted": _samples_unaccounted,
    "time unaccounted": lambda life, covered, rank: (
        f"rank {rank} ran for {format_seconds(life)}, but its start-up, training and pauses add up "
        f"to {format_seconds(covered)}"
    ),
    "frequent pauses": lambda paused, trained, pauses, rank: (
        f"rank {rank} paused {pauses:,} times, after almost every step, and for longer than it "
        f"trained: {format_seconds(paused)} count as validation or checkpoints, and "
        f"{format_seconds(trained)} as training"
    ),
    "later training": lambda count: (
        f"{count:,} process{'' if count == 1 else 'es'} began to train after an earlier one of the "
        "same rank had ended: only the first training was recorded"
    ),
    "local SGD": "ranks train apart and average their weights every few steps (local SGD): between "
    "averages their weights differ, as intended",
    "several threads": lambda threads, rank: (
        f"{threads} threads of rank {rank} train at the same time: their steps and phases cannot "
        "be told apart"
    ),
    "batch too small": "a global batch of {batch:,} gives {predicted:,} devices less than one "
    "sample each",
    "uneven batch": "a global batch of {batch:,} cannot be divided equally among {predicted:,} "
    "devices",
    "far extrapolation": "{predicted:,} devices are {reach:.3g} times the largest measurement, "
    "and the measurements span only a factor of {span:.3g}",
    "left out": "left out: {problem}",
    "watching stopped": "{topology}: watching stopped before the end: {reason}",
    "no trace": "{topology}: no trace was recorded: {reason}",
    "samples unclear": lambda topology: (
        f"{topology}: {batch_sharing.UNCLEAR}, {parameter('samples_per_step')}"
    ),
    "shared samples": f"{{topology}}: {batch_sharing.SHARED_SAMPLES_COUNTED_ONCE}",
    "sequence first": "the model takes the sequence first, so that the first dimension of its "
    "input, whose size counts as samples, may be time and not the batch",
    "rows of one": lambda rows: (
        f"the loader draws 1 sample for each batch, and a collate function makes "
        f"{f'{rows:,} rows' if rows else 'a batch of unknown size'} of it: it counts as 1 sample"
    ),
    "rows unclear": "no data loader was seen, and the tensors in a model's input agree on the "
    "number of rows only in some calls: the others add no samples",
    "calls added": "no data loader was seen, and a model is called several times in a step: the "
    "rows of these calls were added up, although they may be the same samples",
    "manual updates": "the program updates its weights without an optimizer: steps are inferred "
    "from weight changes",
    "idle devices": lambda allocation, idle, total: (
        f"all runs shared an allocation of {allocation} devices: {idle:.2f} of {total:.2f} "
        f"device-hours ({idle / total:.0%}) were idle beside smaller runs"
    ),
    "not finished": "{unfinished} of {runs} runs are not finished",
    "failed run": "{topology}: {cause}",
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
    "disk refused": lambda rank, seconds, error: (
        f"the disk refused the lines of rank {rank} for {format_seconds(seconds)} ({error}): they "
        "were kept in memory and written later"
    ),
    "disk slow": lambda rank, seconds: (
        f"single writes of rank {rank} to its disk took {format_seconds(seconds)}, which count in "
        "its steps"
    ),
    "clock set": lambda host, seconds: (
        f"the clock of {host or 'a host'} was set by {seconds:+,.0f} s during a run: times are "
        "measured by one that is never set"
    ),
    "loss not finite": "the final loss is not a number: the accuracy is meaningless",
    "overloaded": lambda host, share: (
        f"host {host} was overloaded: other processes used {100 * share:.0f} % of its CPU; "
        "times are unreliable"
    ),
    "work differs": _work_differs,
    "accuracy differs": "validation accuracy {accuracy:.1%} differs from the baseline's "
    "{baseline:.1%} by more than its spread ({spread:.1%})",
    "other device": "{device} is compared with {baseline}: this is acceleration, not efficiency",
    "columns disagree": lambda column, role, given, computed: (
        f'"{column}" says {_ratio_text(role, given)}, but the other columns give '
        f"{_ratio_text(role, computed)}"
    ),
    "runs differ": _make_difference_text("runs of this curve"),
    "baseline missing": "the run on {missing} is missing: compared with {used} devices",
    "partly filled nodes": _partly_filled_nodes,
    "start unknown": "this table does not show the start-up: the line about the full run says "
    "whether its times leave start-up out or multiply it",
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
    "attempts unread": "left out: device-hours of failed attempts, because {problem}",
    "clock off": lambda host, ahead: (
        f"the clock of {host} is {abs(ahead):.2f} s {'ahead of' if ahead > 0 else 'behind'} the "
        "first node's: parts of the complete time that begin on one node and end on another are "
        "off by as much"
    ),
}
"""By kind of doubt: what is doubtful."""
MENDS: Mapping[DoubtKind, DoubtText] = {
    **dict.fromkeys(
        GUARDED_KINDS,
        lambda says, hint: hint,
    ),
    "training differs": fix_text,
    "implausible efficiency": _check_row,
    "superlinear": _check_row,
    "columns disagree": "check this row; without that column, nothing is compared",
    "impossible time": "check the columns time, throughput and samples for other units",
    "time disagrees": "check this row: both numbers must come from the same run",
    "outlier": "measure this point again",
    "few steps": "measure at least 100 steps",
    "not steady": "measure more steps, and leave the first ones out",
    "rehearsed": "run it on as many hosts: the network between nodes was not measured",
    "overloaded": "measure again on an idle machine",
    "loss not finite": "lower the learning rate, or train in a wider precision",
    "accuracy differs": "adjust the learning rate to the global batch, or keep the global batch",
    "left out": lambda problem, hint: hint,
    "attempts unread": lambda problem, hint: hint,
    "watching stopped": "measure it again; log.txt of the run has the reason",
    "samples unclear": lambda topology: f"give {parameter('samples_per_step')}",
    **dict.fromkeys(
        ("sequence first", "rows of one", "calls added", "rows unclear"),
        lambda **figures: f"give {parameter('samples_per_step')}",
    ),
    **dict.fromkeys(
        ("steps unaccounted", "some steps unaccounted"),
        "call `probe.step(samples=…)` in the program, where a step ends",
    ),
    **dict.fromkeys(
        ("samples unknown", "samples unaccounted", "some samples unaccounted"), _state_samples
    ),
    "time unaccounted": "log.txt of the run shows what else the program did; if that was "
    "training, call `probe.step(samples=…)` in it",
    "frequent pauses": "if that is no validation, call `probe.step(samples=…)` in the program",
    "later training": "measure each training in a program of its own",
    "several threads": "train in one thread, or call `probe.step(samples=…)` in one of them",
    "batch too small": "predict at most {batch:,} devices, or increase the global batch",
    "uneven batch": "choose a number of devices that divides the global batch",
    "far extrapolation": "measure more devices first",
}
"""By kind of doubt: what to do. Doubts without an entry need no action."""
