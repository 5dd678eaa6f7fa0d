"""Runs and points as scalewise exports them: by name, as docs/reference/interchange.md has them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scalewise.analysis.measure.logs.log import DeviceCount, Log, Observation, Quantity

QUANTITIES: dict[str, Quantity] = {
    "throughput": "throughput",
    "time": "time",
    "epoch_time": "epoch_time",
    "samples": "samples",
    "energy": "energy",
}
"""By exported name; what else is exported follows from these, or a table cannot hold it."""


@dataclass(kw_only=True)
class Entry:
    """One run, or the mean of one number of devices."""

    curve: str | None
    run: str | None = None
    devices: int | None = None
    nodes: int | None = None
    unit: str | None = None
    """The unit of throughput, such as ``images/s``."""
    values: dict[str, dict[str, float]] = field(default_factory=dict)
    """By exported name: ``value``, and ``low`` and ``high`` if known; without ``value``, they are
    not used.
    """

    def set(self, name: str, value: Any, more: Mapping[str, Any] | None = None) -> None:
        """Add a value and its interval, if they are numbers."""
        if is_number(value):
            known = {key: more[key] for key in ("low", "high") if more and is_number(more.get(key))}
            self.values[name] = {"value": float(value), **known}

    def log(self, file_format: str) -> Log:
        """Return the entry as a log of its own."""
        log = Log(format=file_format, name=self.run, curve=self.curve, is_mean=self.run is None)
        if self.devices:
            log.device_counts.append(DeviceCount(self.devices, "the file", self.nodes))
        for name, quantity in QUANTITIES.items():
            numbers = self.values.get(name, {})
            if "value" not in numbers:
                continue
            log.add(
                Observation(
                    quantity=quantity,
                    value=numbers["value"],
                    source=name,
                    low=numbers.get("low"),
                    high=numbers.get("high"),
                    whole_run=True,
                    is_total=True,
                    unit=self._unit_of_work() if name == "throughput" else None,
                )
            )
        batch = self.values.get("global_batch", {}).get("value", 0)
        log.global_batch = int(batch) if 1 <= batch < 1e15 else None
        return log

    def _unit_of_work(self) -> str | None:
        unit = (self.unit or "").strip()
        return unit.removesuffix("/s") if unit.endswith("/s") else unit or None


def is_number(value: Any) -> bool:
    """Say whether a JSON value is a number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def entry_logs(entries: list[Entry], file_format: str) -> list[Log]:
    """Return the runs of entries; means only of curves without runs."""
    logs = [entry.log(file_format) for entry in entries]
    return [log for log in without_means(logs) if log.observations]


def without_means(logs: list[Log]) -> list[Log]:
    """Return logs without the means of curves whose runs are among them."""
    with_runs = {log.curve for log in logs if not log.is_mean and log.curve is not None}
    return [log for log in logs if not (log.is_mean and log.curve in with_runs)]
