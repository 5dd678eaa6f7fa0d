"""JSON lines: DLLogger's (``DLLL {…}``), Extra-P's, and those that programs write themselves."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from scalewise.analysis.measure.logs.device_count import DEVICE_KEYS
from scalewise.analysis.measure.logs.exported import Entry, entry_logs, is_number
from scalewise.analysis.measure.logs.log import Log, json_object
from scalewise.analysis.measure.logs.tag_names import tag_meaning
from scalewise.analysis.measure.table_numbers import MAX_DEVICES

DLLOGGER = "DLLL"
MAX_OBSERVATIONS = 20_000
"""Enough for a mean; a huge file stays quick."""
DEVICE_PARAMETERS = (*DEVICE_KEYS, "p", "n", "ranks", "processes")
"""Names of the parameter of Extra-P that are numbers of devices."""


def read_json_lines(text: str) -> list[Log]:
    """Return the runs of a file of JSON lines; no runs if it has none."""
    entries: dict[tuple[str, int, str | None], Entry] = {}
    repeats: list[Entry] = []
    log = Log(format="JSON lines")
    for number, line in enumerate(text.split("\n"), start=1):
        if len(log.observations) > MAX_OBSERVATIONS:
            break
        start = line.find("{")
        if start < 0 or (start and not line[:start].rstrip().endswith(DLLOGGER)):
            continue
        values = json_object(line[start:])
        if values is None:
            continue
        if isinstance(values.get("params"), dict) and "metric" in values:
            _add_measurement(values, entries, repeats)
        else:
            _add_line(log, values, number)
    if repeats:
        return entry_logs(repeats, "Extra-P file")
    return [log] if log.observations else []


def _add_measurement(
    values: Mapping[str, Any],
    entries: dict[tuple[str, int, str | None], Entry],
    repeats: list[Entry],
) -> None:
    """Add a line of Extra-P; lines of a call path below the root are parts of a run."""
    counts = [values["params"].get(name) for name in DEVICE_PARAMETERS]
    numbers = (count for count in counts if is_number(count))
    devices = next((int(count) for count in numbers if 1 <= count <= MAX_DEVICES), None)
    path, metric = str(values.get("callpath") or ""), str(values["metric"])
    if devices is None or "->" in path:
        return
    run = values.get("run")
    key = (path, devices, None if run is None else str(run))
    entry = entries.get(key)
    if entry is None or metric in entry.values:  # The next repeat.
        unit = values.get("unit")
        entry = Entry(curve=path or None, run=key[2], devices=devices)
        entry.unit = unit if isinstance(unit, str) else None
        entries[key] = entry
        repeats.append(entry)
    entry.set(metric, values.get("value"), values)


def _add_line(log: Log, values: Mapping[str, Any], number: int) -> None:
    """Add the rates and times of a line, of which DLLogger has the values under ``data``."""
    data, step = values.get("data"), values.get("step")
    is_dllogger = isinstance(data, dict)
    data = data if isinstance(data, dict) else values
    epoch = values.get("epoch")
    if is_dllogger and isinstance(step, list):
        epoch = step[0] if step else None
    for key in DEVICE_KEYS:
        log.count_devices(data.get(key), f"line {number}")
    for key, value in data.items():
        meaning = tag_meaning(str(key))
        if meaning is None or not is_number(value):
            continue
        observation = meaning.observation(value, f'the key "{key}"', number, epoch)
        if is_dllogger and step == []:
            source, rank = f"{observation.source} of the summary", observation.rank - 1
            observation = replace(observation, source=source, rank=rank, whole_run=True)
        log.add(observation)
