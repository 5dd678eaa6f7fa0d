"""What is written for other tools: the values of curves, points and runs, the same in each format.

docs/reference/interchange.md describes the names. A value that is not known is absent, never 0.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scalewise.analysis.measure import Estimate, Point, ScalingCurve
from scalewise.analysis.measure.energy import NodeSamples
from scalewise.analysis.measure.run_values import Series, epoch_series, measure_run, step_series
from scalewise.analysis.measure.window import training_interval
from scalewise.analysis.number_format import format_count
from scalewise.errors import cut
from scalewise.record.read import RunRecord
from scalewise.report.escape import escape_markdown, printable
from scalewise.report.text.doubts import doubt_values

SECONDS_PER_HOUR = 3600
MAX_TEXT = 400
"""Longer names and settings are cut: a store may refuse them."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A number that is written for each point, and for each run unless it compares points."""

    name: str
    meaning: str
    unit: str | None = None
    """The unit in OpenMetrics' words, if there is one; a share is a ``ratio``."""


METRICS = (
    Metric("throughput", "Work per second of all devices, in the steady state."),
    Metric("throughput_per_device", "Work per second of one device."),
    Metric("time", "Complete time of the job, from launch to end.", "seconds"),
    Metric("epoch_time", "Time of an epoch, without the first one.", "seconds"),
    Metric("first_epoch_time", "Time of the first epoch.", "seconds"),
    Metric("device_hours", "Devices times complete time, in hours."),
    Metric("speedup", "Throughput over that of the smallest number of devices.", "ratio"),
    Metric("speedup_time", "Time of the smallest number of devices over this time.", "ratio"),
    Metric("efficiency", "Speedup over the growth in devices.", "ratio"),
    Metric("overhead", "Share of the complete time that is not training steps.", "ratio"),
    Metric("exposed", "Share of a step that is communication beside no computation.", "ratio"),
    Metric("mfu", "Share of the device's peak that the model's operations reach.", "ratio"),
    Metric("memory", "Peak memory of the fullest device.", "bytes"),
    Metric("energy", "Energy of the devices over the complete time.", "joules"),
    Metric("power", "Mean power of a device over the complete time.", "watts"),
    Metric("accuracy", "Accuracy on the validation data after the last epoch.", "ratio"),
    Metric("samples", "Work of all ranks in total."),
    Metric("steps", "Optimizer steps in total."),
    Metric("global_batch", "Samples of all ranks in a step."),
)
UNITS = {metric.name: metric.unit for metric in METRICS}


@dataclass(frozen=True, kw_only=True)
class ExportedPoint:
    """The values of one number of devices, over all repeats."""

    devices: int
    nodes: int | None
    values: Mapping[str, Estimate]
    parts: Mapping[str, Estimate]
    """Seconds of each part of the complete time."""


@dataclass(frozen=True, kw_only=True)
class ExportedRun:
    """One run: what it measured alone."""

    id: str
    devices: int
    nodes: int
    repeat: int
    started: float
    ended: float
    training: tuple[float, float] | None
    """When training began and ended; times are seconds since 1970."""
    settings: Mapping[str, str | int | float | bool]
    values: Mapping[str, Estimate]
    """Intervals are from the run's own steps, if known."""
    parts: Mapping[str, Estimate]
    steps: Series
    epochs: Series

    @property
    def name(self) -> str:
        """``4 devices, repeat 0``, with the id, which no other run has."""
        return f"{format_count(self.devices)}, repeat {self.repeat}, {self.id}"


@dataclass(frozen=True, kw_only=True)
class ExportedCurve:
    """A curve with its points and runs; a table has points only."""

    name: str
    study: str
    settings: Mapping[str, str | int | float | bool]
    """What all of its runs have in common: scaling, work, unit, and the settings of the curve."""
    unit: str
    """The unit of throughput, such as ``images/s``."""
    points: Sequence[ExportedPoint]
    runs: Sequence[ExportedRun] = ()
    doubts: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    """``code``, ``severity``, ``devices``, ``text`` and ``mend`` of each doubt."""

    @property
    def doubt_lines(self) -> list[str]:
        """Each doubt as a line with its severity, code and number of devices."""
        return [
            f"{doubt['severity']} [{doubt['code']}]"
            + (f" on {format_count(doubt['devices'])}" if doubt["devices"] else "")
            + f": {doubt['text']}"
            for doubt in self.doubts
        ]

    @property
    def doubt_text(self) -> str:
        """The doubts as a list in Markdown."""
        return "\n".join(f"- {escape_markdown(line)}" for line in self.doubt_lines)

    def doubt_codes(self, devices: int | None = None) -> list[str]:
        """Return the codes of all doubts, or of those about this number of devices and all."""
        wanted = [d for d in self.doubts if devices is None or d["devices"] in (None, devices)]
        return list(dict.fromkeys(doubt["code"] for doubt in wanted))


def export_curve(
    curve: ScalingCurve, records: Sequence[RunRecord] = (), nodes: NodeSamples | None = None
) -> ExportedCurve:
    """Return what is written about a curve. Times are measured ones, also if it has a full run."""
    measured = curve.measured or curve
    settings = {"scaling": curve.scaling, "work": measured.work, **curve.conditions, **curve.where}
    ordered = sorted(records, key=lambda run: (run.spec.topology.world, run.spec.repeat))
    return ExportedCurve(
        name=one_line(curve.name),
        study=one_line(curve.study),
        settings=flatten(settings),
        unit=one_line(curve.rate_unit),
        points=[_export_point(point) for point in measured.points],
        runs=[_export_run(record, nodes) for record in ordered],
        doubts=[
            {**doubt, "text": printable(doubt["text"]), "mend": printable(doubt["mend"] or "")}
            for doubt in doubt_values(curve.doubts)
        ],
    )


def _export_point(point: Point) -> ExportedPoint:
    return ExportedPoint(
        devices=point.devices,
        nodes=point.nodes,
        values=_values(point),
        parts={name: _finite(part) for name, part in point.complete.items()},
    )


def _export_run(record: RunRecord, nodes: NodeSamples | None) -> ExportedRun:
    point = measure_run(record, nodes)
    topology, environment = record.spec.topology, record.environment
    engine = environment.get("engine") or {}
    settings = {
        **{k: v for k, v in record.spec.to_dict().items() if k != "env"},  # May hold secrets.
        "global_batch": point.global_batch,
        "device_name": point.device_name,
        "processor": environment.get("processor"),
        "python": environment.get("python"),
        "commit": environment.get("commit"),
        "engine_version": engine.get("version"),
        "hosts": sorted({rank.host for rank in record.ranks if rank.host}),
    }
    return ExportedRun(
        id=record.spec.id,
        devices=topology.world,
        nodes=topology.nodes,
        repeat=record.spec.repeat,
        started=record.started,
        ended=record.ended,
        training=training_interval(record),
        settings=flatten(settings),
        values=_values(point),
        parts={name: _finite(part) for name, part in point.complete.items()},
        steps=step_series(record),
        epochs=epoch_series(record),
    )


def _values(point: Point) -> dict[str, Estimate]:
    """Return the metrics of a point that are known."""
    hours = point.time * (point.devices / SECONDS_PER_HOUR) if point.time else None
    values: dict[str, Estimate] = {}
    for metric in METRICS:
        value = hours if metric.name == "device_hours" else getattr(point, metric.name)
        if isinstance(value, (int, float)):
            value = Estimate(value)
        if value is not None and math.isfinite(value.value):
            values[metric.name] = _finite(value)
    return values


def _finite(estimate: Estimate) -> Estimate:
    """Return an estimate of plain floats; an interval without end is none."""
    value, bounds = float(estimate.value), (estimate.low, estimate.high)
    low, high = (float(bound) if bound is not None else math.inf for bound in bounds)
    if not (math.isfinite(low) and math.isfinite(high)):
        return Estimate(value, count=estimate.count)
    return Estimate(value, low, high, estimate.count)


@dataclass(frozen=True, slots=True)
class Scalar:
    """A value of a tracking tool: its tag, its step, and when it was known."""

    tag: str
    step: int
    value: float
    at: float


def curve_scalars(curve: ExportedCurve) -> Iterator[Scalar]:
    """Return the values of a curve's points; the step is the number of devices."""
    at = max((run.ended for run in curve.runs), default=0.0)
    for point in curve.points:
        yield from _entry_scalars("scaling", point, at)


def run_scalars(run: ExportedRun) -> Iterator[Scalar]:
    """Return a run's series by step and by epoch, and its values at the step ``devices``."""
    begin, end = run.training or (run.started, run.ended)
    for prefix, series in (("step", run.steps), ("epoch", run.epochs)):
        for name, pairs in series.items():
            length = max((number for number, _ in pairs), default=0) + 1
            for number, value in pairs:
                at = begin + (end - begin) * (number + 1) / length  # About then.
                yield Scalar(f"{prefix}/{name}", number, value, at)
    yield from _entry_scalars("run", run, run.ended)
    yield Scalar("run/devices", run.devices, run.devices, run.ended)
    yield Scalar("run/repeat", run.devices, run.repeat, run.ended)


def _entry_scalars(prefix: str, entry: ExportedPoint | ExportedRun, at: float) -> Iterator[Scalar]:
    values: dict[str, float] = {}
    for name, estimate in entry.values.items():
        values[name] = estimate.value
        values |= {f"{name}_{end}": bound for end, bound in interval(estimate).items()}
    values |= {f"complete_{name}": part.value for name, part in entry.parts.items()}
    if entry.nodes:
        values["nodes"] = entry.nodes
    for name, value in values.items():
        yield Scalar(f"{prefix}/{name}", entry.devices, value, at)


def interval(estimate: Estimate) -> dict[str, float]:
    """Return an estimate's interval and its number of repeats; empty if the spread is unknown.

    >>> interval(Estimate(2.0, 1.0, 3.0, 5)), interval(Estimate(2.0))
    ({'low': 1.0, 'high': 3.0, 'count': 5}, {})
    """
    if estimate.low is None or estimate.high is None:
        return {}
    return {"low": estimate.low, "high": estimate.high, "count": estimate.count}


def flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str | int | float | bool]:
    """Return settings as one level of plain values; those that are not set are left out.

    >>> flatten({"lr": 0.1, "clip": None, "options": {"noise": 0.02}, "hosts": ["a", "b"]})
    {'lr': 0.1, 'options.noise': 0.02, 'hosts': 'a b'}
    """
    flat: dict[str, str | int | float | bool] = {}
    for key, value in settings.items():
        name = f"{prefix}{one_line(str(key))}"
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{name}.")
        elif isinstance(value, (bool, int, float)):
            flat[name] = value
        elif isinstance(value, (list, tuple)):
            flat[name] = one_line(" ".join(map(str, value)))
        elif value is not None:
            flat[name] = one_line(str(value))
    return flat


def one_line(text: str) -> str:
    """Return a name as one printable line of at most ``MAX_TEXT`` characters."""
    return cut(printable(text), MAX_TEXT)


def folder_names(names: Iterable[str]) -> list[str]:
    """Return a different folder name for each of these names, safe on every file system.

    >>> folder_names(["vit (strategy fsdp)", "../..", "", "vit strategy fsdp"])
    ['vit-strategy-fsdp', 'study', 'study-2', 'vit-strategy-fsdp-2']
    """
    chosen: list[str] = []
    numbers: dict[str, int] = {}  # In small letters: some file systems do not tell A from a.
    for name in names:
        base = re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-.")[:80] or "study"
        folder = base
        while folder.lower() in numbers:
            numbers[base.lower()] += 1
            folder = f"{base}-{numbers[base.lower()]}"
        numbers[folder.lower()] = 1
        chosen.append(folder)
    return chosen
