"""The power of a simulated machine, in the file format that the node sampler writes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scalewise.probe.node_sampler import node_file
from scalewise.record.write import SCHEMA, LineFile


class Meter:
    """The energy counter of one simulated device; ``read`` is called when the power changes."""

    def __init__(self, busy_watts: float, idle_watts: float) -> None:
        self._busy_watts, self._idle_watts = busy_watts, idle_watts
        self.readings: list[tuple[float, float]] = [(0.0, 0.0)]
        """Seconds since the launch, and joules up to then."""

    def read(self, now: float, busy_seconds: float = 0.0) -> None:
        """Add a reading; the device computed for ``busy_seconds`` since the previous reading."""
        previous, joules = self.readings[-1]
        joules += self._idle_watts * (now - previous)
        joules += (self._busy_watts - self._idle_watts) * busy_seconds
        self.readings.append((now, joules))


def write_node(
    folder: Path, host: str, attempt: int, launched: float, meters: Sequence[Meter]
) -> None:
    """Append a node's readings to its file; its meters must have been read at the same times."""
    devices = [{"index": index, "name": "simulated"} for index in range(len(meters))]
    header = {"schema": SCHEMA, "host": host, "interval": 1.0, "devices": devices}
    lines: list[dict[str, Any]] = [header]
    for number, (seconds, _) in enumerate(meters[0].readings):
        samples = []
        for index, meter in enumerate(meters):
            now, joules = meter.readings[number]
            previous, previous_joules = meter.readings[max(0, number - 1)]
            power = (joules - previous_joules) / (now - previous) if now > previous else None
            sample = {"index": index, "energy": joules, "power": power, "own": 1, "foreign": 0}
            samples.append(sample)
        lines.append({"at": launched + seconds, "devices": samples})
    file = LineFile(node_file(folder, host), attempt)
    for line in lines:
        file.line(line)
    file.close()
