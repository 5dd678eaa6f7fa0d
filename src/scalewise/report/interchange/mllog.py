"""MLPerf's log lines, ``:::MLLOG {…}``: one block per run, from init_start to run_stop.

MLPerf's own keys where it has one; exact values besides, with keys that begin with ``scalewise_``.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from scalewise.report.interchange.contents import (
    ExportedCurve,
    ExportedPoint,
    ExportedRun,
    interval,
)

EventType = Literal["POINT_IN_TIME", "INTERVAL_START", "INTERVAL_END"]
MLPERF_SETTINGS = {
    "global_batch": "global_batch_size", "accumulate": "gradient_accumulation_steps",
    "seed": "seed", "optimizer": "opt_name", "lr": "opt_base_learning_rate",
}  # fmt: skip
"""MLPerf's keys of settings."""


def render(curves: Sequence[ExportedCurve]) -> str:
    """Return the lines of all runs; of a table, those of each number of devices."""
    lines: list[str] = []
    for curve in curves:
        lines += [line for run in curve.runs for line in _run_lines(curve, run)]
        if not curve.runs:
            lines += [line for point in curve.points for line in _point_lines(curve, point)]
    return "".join(f"{line}\n" for line in lines)


def _line(
    key: str,
    value: Any,
    at: float,
    metadata: Mapping[str, Any] | None = None,
    *,
    event_type: EventType = "POINT_IN_TIME",
) -> str:
    """Return the line of an event ``at`` a time in seconds."""
    event = {
        "namespace": "",
        "time_ms": round(at * 1000),
        "event_type": event_type,
        "key": key,
        "value": value,
        "metadata": dict(metadata or {}),
    }
    # MLPerf's parser drops what stands before the last token of a line: a name may not hold one.
    return ":::MLLOG " + json.dumps(event).replace(":::", "\\u003a\\u003a\\u003a")


def _run_lines(curve: ExportedCurve, run: ExportedRun) -> Iterator[str]:
    begin, end = run.training or (run.started, run.ended)
    yield from _header(curve, run, run.started)
    yield _line("init_start", None, run.started, event_type="INTERVAL_START")
    yield _line("scalewise_run", run.id, run.started, {"repeat": run.repeat})
    for name, setting in run.settings.items():
        if key := MLPERF_SETTINGS.get(name):
            yield _line(key, setting, run.started)
    yield _line("scalewise_settings", dict(run.settings), run.started)
    yield _line("init_stop", None, begin, event_type="INTERVAL_END")
    yield _line("run_start", None, begin, event_type="INTERVAL_START")
    yield from _epoch_lines(run, begin)
    if "throughput" in run.values:
        stats = {"throughput": run.values["throughput"].value}
        yield _line("tracked_stats", stats, end, {"unit": curve.unit})
    yield _line("run_stop", None, end, {"status": "success"}, event_type="INTERVAL_END")
    yield from _value_lines(run, run.ended)
    yield from _doubt_lines(curve, run.devices, run.ended)


def _header(curve: ExportedCurve, entry: ExportedRun | ExportedPoint, at: float) -> Iterator[str]:
    """Return the first lines of a block: what was trained, and on how many devices."""
    yield _line("submission_benchmark", curve.study, at, {"curve": curve.name})
    yield _line("scalewise_devices", entry.devices, at)
    if entry.nodes:
        yield _line("number_of_nodes", entry.nodes, at)
        if entry.devices % entry.nodes == 0:
            yield _line("accelerators_per_node", entry.devices // entry.nodes, at)
    yield _line("scalewise_unit", curve.unit, at)


def _epoch_lines(run: ExportedRun, at: float) -> Iterator[str]:
    """Return the events of each epoch; where its time is not known, they have the run's start."""
    numbers = sorted({epoch for series in run.epochs.values() for epoch, _ in series})
    values = {name: dict(series) for name, series in run.epochs.items()}
    for epoch in numbers:
        number, length = {"epoch_num": epoch}, values.get("seconds", {}).get(epoch)
        exact = {} if length is None else {"seconds": length}
        yield _line("epoch_start", None, at, number, event_type="INTERVAL_START")
        at += length or 0.0
        if (loss := values.get("loss", {}).get(epoch)) is not None:
            yield _line("train_loss", loss, at, number)
        yield _line("epoch_stop", None, at, {**number, **exact}, event_type="INTERVAL_END")
        if (accuracy := values.get("accuracy", {}).get(epoch)) is not None:
            yield _line("eval_accuracy", accuracy, at, number)


def _point_lines(curve: ExportedCurve, point: ExportedPoint) -> Iterator[str]:
    """Return the lines of a table's row. The clock is not known: it begins at 0."""
    time = point.values["time"].value if "time" in point.values else 0.0
    yield from _header(curve, point, 0)
    yield _line("run_start", None, 0, event_type="INTERVAL_START")
    if rate := point.values.get("throughput"):
        yield _line("tracked_stats", {"throughput": rate.value}, time, {"unit": curve.unit})
    yield _line("run_stop", None, time, {"status": "success"}, event_type="INTERVAL_END")
    yield from _value_lines(point, time)
    yield from _doubt_lines(curve, point.devices, time)


def _value_lines(entry: ExportedRun | ExportedPoint, at: float) -> Iterator[str]:
    for name, estimate in entry.values.items():
        yield _line(f"scalewise_{name}", estimate.value, at, interval(estimate))
    for name, part in entry.parts.items():
        yield _line("scalewise_complete", part.value, at, {"part": name})


def _doubt_lines(curve: ExportedCurve, devices: int, at: float) -> Iterator[str]:
    for doubt in curve.doubts:
        if doubt["devices"] in (None, devices):
            yield _line("scalewise_doubt", doubt["code"], at, doubt)
