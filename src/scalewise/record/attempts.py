"""The device-hours of every attempt at a run: paid from launch to end, also if it failed."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from scalewise.errors import RecordError
from scalewise.record.close import closed
from scalewise.record.rank_tail import newest_attempt, read_lines, read_tail
from scalewise.record.schema import Failure, Outcome, from_json
from scalewise.record.study_files import finished, read_json
from scalewise.record.write import rank_file

ALLOCATION_LOG = "allocation.jsonl"
"""In the study's folder: a line for each run of an allocation that had several."""
ALLOCATION_LINE = '{"job":"%s","run":"%s","devices":%s,"of":%s,"began":%s,"ended":%s}'
"""What the job writes when a run has ended or failed; printf fills it in."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a run that is over."""

    number: int
    devices: int
    started: float
    ended: float
    well: bool
    """Whether it succeeded and was measured; of the others only checkpoints were of use."""

    @property
    def device_hours(self) -> float:
        """Device-hours that were paid for it."""
        return self.devices * max(0.0, self.ended - self.started) / 3600


def attempts(home: Path) -> tuple[Attempt, ...]:
    """Return the attempts at a run that are over and have a launch time; none if it is damaged."""
    try:
        by_number = _attempts(home)
    except (RecordError, KeyError, TypeError, ValueError):
        return ()
    # Of attempts that one launch has started, the last has all its time.
    by_launch = {by_number[number].started: by_number[number] for number in sorted(by_number)}
    return tuple(sorted(by_launch.values(), key=lambda attempt: attempt.number))


def _attempts(home: Path) -> dict[int, Attempt]:
    job = read_json(home / "job.json")
    devices = int(job["world"])
    newest = newest_attempt(home, int(job["attempt"]))
    under_way = None if closed(home, newest) else newest
    well = from_json(Outcome, read_json(home / "outcome.json") if finished(home) else {})
    by_number: dict[int, Attempt] = {}
    unclosed = set()
    for number in range(1, newest + 1):
        if number == well.attempt:
            launches = (began for _, began, _ in _by_its_lines(home, {number}))
            began = read_tail(home, 0, number).launched or next(launches, None) or well.started
            by_number[number] = Attempt(number, devices, began, well.ended, well=True)
            continue
        path = home / f"failure-{number}.json"
        failure = from_json(Failure, read_json(path) if path.exists() else {})
        if failure.started is not None and failure.ended is not None:
            by_number[number] = Attempt(number, devices, failure.started, failure.ended, well=False)
        elif number != under_way:
            unclosed.add(number)
    for number, began, ended in _by_its_lines(home, unclosed) if unclosed else ():
        by_number[number] = Attempt(number, devices, began, ended, well=False)
    return by_number


def _by_its_lines(home: Path, numbers: set[int]) -> Iterator[tuple[int, float, float]]:
    """Yield begin and end, by rank 0's lines, of preempted or repeated attempts (no outcome)."""
    began: dict[int, float] = {}
    reached: dict[int, float] = {}
    for line in read_lines(rank_file(home, 0)):
        number = line.get("attempt", 0)
        if number not in numbers:
            continue
        if number not in began:
            launched = line.get("launched", line["start"] if line.get("span") == "launch" else None)
            if launched is None:
                continue
            began[number] = reached[number] = float(launched)
        if "steps" in line:
            reached[number] += line["seconds"]
        later = (line.get(key) for key in ("end", "at", "ended"))
        reached[number] = max(reached[number], *(at for at in later if at is not None), 0.0)
    for number, start in began.items():
        yield number, start, reached[number]


@dataclass(frozen=True, slots=True)
class AllocationShare:
    """One run's time in an allocation; meanwhile all devices of the allocation were paid for."""

    job: str
    run: str
    devices: int
    allocation_devices: int
    """``of`` in the file."""
    began: float
    ended: float

    @property
    def bought(self) -> float:
        """Device-hours of the allocation."""
        return self.allocation_devices * (self.ended - self.began) / 3600

    @property
    def idle(self) -> float:
        """Device-hours in which devices were idle."""
        return (self.allocation_devices - self.devices) * (self.ended - self.began) / 3600


def allocation_shares(folder: Path) -> tuple[AllocationShare, ...]:
    """Return each run's share of the allocations of a study; empty if each run had its own."""
    complete = []
    for line in read_lines(folder / ALLOCATION_LOG):
        with suppress(KeyError, TypeError):  # A line that lacks something.
            complete.append(AllocationShare(allocation_devices=line.pop("of"), **line))
    return tuple(complete)


def bought(folder: Path) -> float:
    """Return the device-hours that a study's folder has cost: failed, outdated and idle too."""
    paid = (
        attempt.device_hours
        for path in folder.glob("*/job.json")
        for attempt in attempts(path.parent)
    )
    return sum(paid, 0.0) + sum(share.idle for share in allocation_shares(folder))
