"""OpenMetrics files of scalewise: one line per value, with curve, devices and run as labels."""

import re

from scalewise.analysis.measure.logs.exported import Entry, entry_logs
from scalewise.analysis.measure.logs.log import Log

LINE = re.compile(r"scalewise_(\w+)\{(.*)\} (\S+)")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
UNITS = re.compile(r"_(?:seconds|bytes|joules|watts|ratio)$")


def is_openmetrics(text: str) -> bool:
    """Say whether a text has values of scalewise in the form of OpenMetrics."""
    return bool(re.search(r"^scalewise_\w+\{", text, re.MULTILINE))


def read_openmetrics(text: str) -> list[Log]:
    """Return the runs of a file, or its points if it has no runs."""
    entries: dict[tuple[str | None, ...], Entry] = {}
    for line in text.split("\n"):
        match = LINE.fullmatch(line.strip())
        if match is None:
            continue
        labels = {name: _unescape(text) for name, text in LABEL.findall(match[2])}
        name, part = _value_name(match[1], is_run="run" in labels)
        try:
            value = float(match[3])
            devices, nodes = int(labels["devices"]), int(labels.get("nodes", "0"))
        except (KeyError, ValueError):
            continue
        key = tuple(labels.get(label) for label in ("curve", "devices", "nodes", "run"))
        entry = entries.setdefault(
            key,
            Entry(
                curve=labels.get("curve", ""),
                run=labels.get("run"),
                devices=devices if 0 < devices < 10**7 else None,
                nodes=nodes if 0 < nodes < 10**7 else None,
            ),
        )
        entry.unit = labels.get("unit") or entry.unit
        entry.values.setdefault(name, {})[part] = value
    return entry_logs(list(entries.values()), "OpenMetrics file")


def _value_name(family: str, *, is_run: bool) -> tuple[str, str]:
    """Return the name and the part of a family.

    >>> _value_name("run_time_low_seconds", is_run=True), _value_name("throughput", is_run=False)
    (('time', 'low'), ('throughput', 'value'))
    """
    name = UNITS.sub("", family)
    name = name.removeprefix("run_") if is_run else name
    for part in ("low", "high"):
        if name.endswith(f"_{part}"):
            return name.removesuffix(f"_{part}"), part
    return name, "value"


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], text)
