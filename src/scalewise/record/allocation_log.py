"""What one allocation was used for that had several runs in it: a line for each, by its job."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

FILE = "allocation.jsonl"
"""In the study's folder."""
LINE = '{"job":"%s","run":"%s","devices":%s,"of":%s,"began":%s,"ended":%s}'
"""What the job writes when a run has ended, well or not; printf fills it in."""


@dataclass(frozen=True, slots=True)
class Stay:
    """A run in an allocation: all of its devices were paid for meanwhile."""

    job: str
    run: str
    devices: int
    of: int
    """The devices of the allocation."""
    began: float
    ended: float

    @property
    def bought(self) -> float:
        """Device-hours of the allocation."""
        return self.of * (self.ended - self.began) / 3600

    @property
    def idle(self) -> float:
        """Device-hours in which devices were idle."""
        return (self.of - self.devices) * (self.ended - self.began) / 3600


def stays(folder: Path) -> tuple[Stay, ...]:
    """Return what allocations of a study were used for; empty where each run had its own."""
    return tuple(_read(folder / FILE))


def _read(path: Path) -> Iterator[Stay]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return
    for line in lines:
        with suppress(ValueError, TypeError):  # A line that was cut off.
            yield Stay(**json.loads(line))
