"""MLPerf logs: lines ``:::MLLOG {json}`` of mlperf-logging."""

import re
from collections.abc import Mapping
from typing import Any

from scalewise.analysis.measure.logs.device_count import DEVICE_KEYS
from scalewise.analysis.measure.logs.exported import Entry, entry_logs
from scalewise.analysis.measure.logs.log import (
    Log,
    Observation,
    Quantity,
    epoch_number,
    json_object,
)
from scalewise.analysis.measure.table_numbers import MAX_VALUE

MARK = ":::MLLOG"
OWN_DEVICES = "scalewise_devices"
"""The key by which logs of scalewise are known."""
INTERVALS: dict[str, Quantity] = {"run": "time", "epoch": "epoch_time", "block": "epoch_time"}
"""By name of an interval: what its length is. A block is one or more epochs."""


def read_mllog(text: str) -> list[Log]:
    """Return the run of an MLPerf log, or the runs of one that scalewise wrote; lines that are cut
    are left out.
    """
    if OWN_DEVICES in text:
        return _own_runs(text)
    log = _read_run(text)
    return [log] if log.observations else []


def _own_runs(text: str) -> list[Log]:
    """Return the runs that scalewise wrote: a block for each."""
    entries: list[Entry] = []
    for line in text.split("\n"):
        event = _event(line)
        if event is None:
            continue
        key, value, metadata = event["key"], event.get("value"), event["metadata"]
        if key == "submission_benchmark":
            entries.append(Entry(curve=str(metadata.get("curve", value))))
        if not entries:
            continue
        entry = entries[-1]
        if key == OWN_DEVICES and isinstance(value, int) and 0 < value < 10**7:
            entry.devices = value
        elif key == "number_of_nodes" and isinstance(value, int) and 0 < value < 10**7:
            entry.nodes = value
        elif key == "scalewise_run":
            entry.run = str(value)
        elif key == "scalewise_unit":
            entry.unit = str(value)
        elif key.startswith("scalewise_"):
            entry.set(key.removeprefix("scalewise_"), value, metadata)
    return entry_logs(entries, "MLPerf log")


def _read_run(text: str) -> Log:
    log = Log(format="MLPerf log")
    begun: dict[str, tuple[float, Any]] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        event = _event(line)
        if event is None:
            continue
        key, value, metadata = event["key"], event.get("value"), event["metadata"]
        _note_facts(log, key, value, metadata, number)
        name, _, end = key.rpartition("_")
        if end == "start" and name in INTERVALS:
            begun[name] = (event["time_ms"], metadata)
        elif end == "stop" and name in begun:
            start_ms, start = begun.pop(name)
            epochs = metadata.get("epoch_count") or start.get("epoch_count") or 1
            seconds = (event["time_ms"] - start_ms) / 1000
            if name != "run" and isinstance(epochs, (int, float)) and epochs > 0:
                seconds /= epochs
            epoch = metadata.get("epoch_num", start.get("first_epoch_num"))
            _add(log, INTERVALS[name], seconds, f"{name}_start to {name}_stop", number, epoch)
        elif key in ("tracked_stats", "throughput"):
            stats = value if isinstance(value, dict) else {"throughput": value}
            epoch = metadata.get("epoch_num", metadata.get("step"))
            rate = stats.get("throughput")
            if isinstance(rate, (int, float)):
                _add(log, "throughput", rate, key, number, epoch)
    return log


def _event(line: str) -> dict[str, Any] | None:
    """Return the event of a line; None if it has none, or a damaged one."""
    at = line.find(MARK)
    if at < 0:
        return None
    event = json_object(line[at + len(MARK) :])
    if event is None or not isinstance(event.get("key"), str):
        return None
    if not isinstance(event.get("time_ms"), (int, float)):
        return None
    if not isinstance(event.get("metadata"), dict):
        event["metadata"] = {}
    return event


def _note_facts(log: Log, key: str, value: Any, metadata: Mapping[str, Any], number: int) -> None:
    counts = {key: value, **metadata} if key in DEVICE_KEYS else metadata
    for name in DEVICE_KEYS:
        log.count_devices(counts.get(name), f"line {number}")
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MAX_VALUE:
        if key == "global_batch_size":
            log.global_batch = value
        elif key == "train_samples":
            log.samples_per_epoch = value


def _add(log: Log, quantity: Quantity, value: float, source: str, number: int, epoch: Any) -> None:
    log.add(
        Observation(
            quantity=quantity,
            value=float(value),
            source=re.sub(r"_", " ", source),
            line=number,
            epoch=epoch_number(epoch),
            whole_run=quantity == "time",
        )
    )
