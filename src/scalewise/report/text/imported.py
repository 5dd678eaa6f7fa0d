"""Sentences about imported logs: what was read, from which lines, and what was left out."""

from collections.abc import Sequence
from pathlib import Path

from scalewise.analysis.measure.logs import LogRun
from scalewise.analysis.measure.logs.log_run import Evidence
from scalewise.analysis.number_format import format_count, join_with_and
from scalewise.errors import parameter
from scalewise.import_logs import ImportedLogs

QUANTITY_TEXT = {"throughput": "throughput", "epoch_time": "time per epoch", "time": "time"}
DERIVED_TEXT = {
    "batch": "times the global batch",
    "samples per epoch": "samples per epoch divided by the time",
    "per device": "of one device, multiplied by the devices",
}
MAX_NAMED_FILES = 8
MIN_GROWTH = 1.3
"""Rates that grow less than this from the fewest to the most devices may be those of one device."""

MAX_SAMPLES_RATIO = 1.5
"""Epochs of one data set differ less than this: the last step may have fewer samples."""


def imported_lines(logs: ImportedLogs) -> list[str]:
    """Return one line per log, then what was left out."""
    read = [run_sentence(run) for run in logs.runs if not run.exported]
    exported = [run for run in logs.runs if run.exported]
    origins = dict.fromkeys(run.origin for run in exported)
    for origin in origins:
        read.append(_exported_sentence([run for run in exported if run.origin == origin]))
    return [*read, *skipped_lines(logs.skipped)]


def _exported_sentence(runs: Sequence[LogRun]) -> str:
    """Return what was read from a file or folder of exact values."""
    counts = join_with_and([str(count) for count in dict.fromkeys(run.devices for run in runs)])
    quantities = dict.fromkeys(QUANTITY_TEXT[key] for run in runs for key in run.evidence)
    rows = f"{format_count(len(runs), 'row')} ({runs[0].format})"
    values = f"{join_with_and(list(quantities))}, as the file has them"
    return f"{runs[0].origin}: {rows}; devices {counts}; {values}."


def run_sentence(run: LogRun) -> str:
    """Return where the numbers of a run are from."""
    clauses = [f"{format_count(run.devices)} ({run.devices_from})"]
    clauses += [
        f"{QUANTITY_TEXT[quantity]}: {_evidence_text(evidence)}"
        for quantity, evidence in run.evidence.items()
    ]
    if run.printers > 1:
        clauses.append(
            f"{run.printers} ranks print lines: those of the first are used, as rates of all "
            "devices"
            if run.throughput and run.evidence["throughput"].derived != "per device"
            else f"{run.printers} ranks print lines: those of the first are used"
        )
    if run.bad_values:
        clauses.append(f"{format_count(run.bad_values, 'value')} not above 0 left out")
    if run.unused:
        clauses.append(f"not used: {join_with_and(list(run.unused))}")
    if run.cut:
        clauses.append("a large file: not read completely")
    return f"{run.name}: {'; '.join(clauses)}."


def _evidence_text(evidence: Evidence) -> str:
    """Return how a quantity was found.

    >>> _evidence_text(Evidence(source="Keras", count=4, lines=(4, 10), left_out="first epoch"))
    '4 values of Keras, lines 4 to 10, without the first epoch, which is slower'
    """
    parts = [f"{format_count(evidence.count, 'value')} of {evidence.source}"]
    if evidence.lines:
        first, last = evidence.lines
        parts.append(f"line {first}" if first == last else f"lines {first} to {last}")
    if evidence.derived:
        parts.append(DERIVED_TEXT[evidence.derived])
    if evidence.left_out:
        parts.append(f"without the {evidence.left_out}, which is slower")
    return ", ".join(parts)


def skipped_lines(skipped: Sequence[tuple[Path, str]]) -> list[str]:
    """Return one line about the files of folders that are no logs; none if there are none."""
    if not skipped:
        return []
    names = [path.name for path, _ in skipped[:MAX_NAMED_FILES]]
    more = ["others"] if len(skipped) > MAX_NAMED_FILES else []
    files = format_count(len(skipped), "file")
    listed = join_with_and([*names, *more])
    return [f"Left out: {files} without a throughput or time of a training: {listed}."]


def growth_hint(runs: Sequence[LogRun]) -> str | None:
    """Return a question if rates hardly grow with the devices, as those of one device do."""
    rated = [
        run
        for run in runs
        if run.throughput and not run.exported and run.evidence["throughput"].derived is None
    ]
    if len({run.devices for run in rated}) < 2:
        return None
    few, many = (choose(rated, key=lambda run: run.devices) for choose in (min, max))
    if not few.throughput or not many.throughput:
        return None
    if many.throughput.value > MIN_GROWTH * few.throughput.value:
        return None
    return (
        f"The rates hardly grow from {few.devices} to {format_count(many.devices)}. If they are "
        f"those of one device, import again with {parameter('per_device', value=True)}."
    )


def batch_hint(runs: Sequence[LogRun]) -> str | None:
    """Return a question if, by the global batch, an epoch has other samples on more devices."""
    barred = [
        run
        for run in runs
        if run.steps
        and run.global_batch
        and run.throughput
        and run.evidence["throughput"].derived == "batch"
    ]
    if not barred:
        return None
    few, many = (choose(barred, key=lambda run: run.devices) for choose in (min, max))
    samples, others = ((run.steps or 0) * (run.global_batch or 0) for run in (few, many))
    if max(samples, others) <= MAX_SAMPLES_RATIO * min(samples, others):
        return None
    return (
        f"An epoch has {samples:,} samples on {format_count(few.devices)} and {others:,} on "
        f"{format_count(many.devices)}: check the batch. {parameter('batch')} is that of all "
        f"devices, {parameter('batch_per_device')} that of one."
    )
