"""OpenMetrics text, as Prometheus and its relatives read it; all families are gauges, so that
readers of Prometheus' older text format accept the file too.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from scalewise.report.interchange.contents import (
    METRICS,
    ExportedCurve,
    ExportedPoint,
    ExportedRun,
    Metric,
)

Sample = tuple[Mapping[str, Any], float]
Entries = Sequence[tuple[ExportedCurve, ExportedPoint | ExportedRun]]


def render(curves: Sequence[ExportedCurve]) -> str:
    """Return the families: values of points and of runs, settings of runs, doubts."""
    points: Entries = [(curve, point) for curve in curves for point in curve.points]
    runs: Entries = [(curve, run) for curve in curves for run in curve.runs]
    lines: list[str] = []
    for prefix, entries in (("", points), ("run_", runs)):
        for metric in METRICS:
            lines += _metric_families(prefix, metric, entries)
        part = Metric(f"{prefix}complete", "Parts of the complete time.", "seconds")
        lines += _family(part, _part_samples(entries))
    run = Metric("run", "1 for each run, with its settings as labels.")
    lines += _family(run, _setting_samples(curves))
    doubt = Metric("doubt", "1 for each reason to trust a result less.")
    lines += _family(doubt, _doubt_samples(curves))
    return "".join(f"{line}\n" for line in [*lines, "# EOF"])


def _metric_families(prefix: str, metric: Metric, entries: Entries) -> Iterator[str]:
    name, meaning = f"{prefix}{metric.name}", metric.meaning
    low, high = f"Low end of the 90 % interval. {meaning}", f"High end. {meaning}"
    repeats = Metric(f"{name}_repeats", f"Repeats behind the interval of {name}.")
    yield from _family(Metric(name, meaning, metric.unit), _samples(entries, metric, "value"))
    yield from _family(Metric(f"{name}_low", low, metric.unit), _samples(entries, metric, "low"))
    yield from _family(Metric(f"{name}_high", high, metric.unit), _samples(entries, metric, "high"))
    yield from _family(repeats, _samples(entries, metric, "count"))


def _family(metric: Metric, samples: Iterator[Sample]) -> list[str]:
    rows = list(samples)
    if not rows:
        return []
    name = f"scalewise_{metric.name}" + (f"_{metric.unit}" if metric.unit else "")
    return [
        f"# TYPE {name} gauge",
        *([f"# UNIT {name} {metric.unit}"] if metric.unit else []),
        f"# HELP {name} {metric.meaning}",
        *(f"{name}{_labels(labels)} {value!r}" for labels, value in rows),
    ]


def _labels(labels: Mapping[str, Any]) -> str:
    """Return labels as text; their names have letters, digits and underscores only."""
    pairs = [f'{name}="{_escape(str(value))}"' for name, value in labels.items()]
    return "{" + ",".join(pairs) + "}"


def _escape(text: str) -> str:
    r"""Escape a label's value.

    >>> _escape('a "b" \\ c')
    'a \\"b\\" \\\\ c'
    """
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _entry_labels(curve: ExportedCurve, entry: ExportedPoint | ExportedRun) -> dict[str, Any]:
    labels: dict[str, Any] = {"curve": curve.name, "devices": entry.devices}
    if entry.nodes:
        labels["nodes"] = entry.nodes
    if isinstance(entry, ExportedRun):
        labels |= {"run": entry.id, "repeat": entry.repeat}
    return labels


def _samples(
    entries: Entries, metric: Metric, field: Literal["value", "low", "high", "count"]
) -> Iterator[Sample]:
    for curve, entry in entries:
        unit = {"unit": curve.unit} if metric.name.startswith("throughput") else {}
        estimate = entry.values.get(metric.name)
        # Without an interval, the number of repeats says nothing.
        if estimate and (field == "value" or estimate.low is not None):
            yield {**_entry_labels(curve, entry), **unit}, getattr(estimate, field)


def _part_samples(entries: Entries) -> Iterator[Sample]:
    for curve, entry in entries:
        for name, seconds in entry.parts.items():
            yield {**_entry_labels(curve, entry), "part": name}, seconds.value


def _setting_samples(curves: Sequence[ExportedCurve]) -> Iterator[Sample]:
    for curve in curves:
        for run in curve.runs:
            settings = {f"setting_{_label_name(k)}": v for k, v in run.settings.items()}
            yield {**_entry_labels(curve, run), **settings}, 1


def _label_name(text: str) -> str:
    return "".join(char if char.isascii() and char.isalnum() else "_" for char in text)


def _doubt_samples(curves: Sequence[ExportedCurve]) -> Iterator[Sample]:
    for curve in curves:
        for number, doubt in enumerate(curve.doubts):
            place = {"devices": doubt["devices"]} if doubt["devices"] else {}
            labels = {name: doubt[name] for name in ("code", "severity", "text")}
            yield {"curve": curve.name, **place, **labels, "number": number}, 1
