"""What a simulated machine draws: counters as the sampler of a real node would leave them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scalewise.probe.node_sampler import node_file
from scalewise.record.write import SCHEMA, cannot_write


class Meter:
    """The energy counter of one simulated device; it is read where the power changes."""

    def __init__(self, busy_watts: float, idle_watts: float) -> None:
        self._watts, self._idle = busy_watts, idle_watts
        self.readings: list[tuple[float, float]] = [(0.0, 0.0)]
        """Seconds since the launch, and joules until then."""

    def read(self, now: float, computed: float = 0.0) -> None:
        """Read it, after ``computed`` seconds of computing since the last time."""
        then, joules = self.readings[-1]
        joules += self._idle * (now - then) + (self._watts - self._idle) * computed
        self.readings.append((now, joules))


def write_node(
    folder: Path, host: str, attempt: int, launched: float, meters: Sequence[Meter]
) -> None:
    """Append what the meters of one node showed to its file; their readings are simultaneous."""
    first = {
        "schema": SCHEMA,
        "host": host,
        "interval": 1.0,
        "devices": [{"index": place, "name": "simulated"} for place in range(len(meters))],
    }
    lines = [first]
    for number, (now, _) in enumerate(meters[0].readings):
        devices = [_sample(place, meter, number) for place, meter in enumerate(meters)]
        lines.append({"at": launched + now, "devices": devices})
    path = node_file(folder, host)
    try:
        with path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps({"attempt": attempt, **line}) + "\n" for line in lines)
    except OSError as why:
        raise cannot_write(path, why) from why


def _sample(place: int, meter: Meter, number: int) -> dict[str, Any]:
    now, joules = meter.readings[number]
    then, before = meter.readings[max(0, number - 1)]
    power = (joules - before) / (now - then) if now > then else None
    return {"index": place, "energy": joules, "power": power, "own": 1, "foreign": 0}
