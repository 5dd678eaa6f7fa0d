"""What one allocation was used for that had several runs in it: a line for each, by its job."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from scalewise.record.rank_tail import read_lines

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
    complete = []
    for line in read_lines(folder / FILE):
        with suppress(TypeError):  # A line that lacks something.
            complete.append(Stay(**line))
    return tuple(complete)
