"""Count the device-hours of every attempt at a run, from its launch to its end or failure."""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from scalewise.errors import RecordError
from scalewise.record.close import closed
from scalewise.record.json_files import read_json
from scalewise.record.line_sums import REPEAT
from scalewise.record.rank_tail import newest_attempt, read_lines, read_tail
from scalewise.record.schema import Failure, Outcome, from_json
from scalewise.record.study_files import finished
from scalewise.record.write import rank_file

ALLOCATION_LOG = "allocation.jsonl"
"""File in the study's folder with a line for each run in an allocation that several runs share."""
ALLOCATION_LINE = '{"job":"%s","run":"%s","devices":%s,"of":%s,"began":%s,"ended":%s}'
"""The printf format of this line, which the job's script writes when a run has ended or failed."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A finished or failed attempt at a run."""

    number: int
    devices: int
    started: float
    ended: float
    succeeded: bool
    """Whether this attempt measured the run; other attempts left at most checkpoints."""

    @property
    def device_hours(self) -> float:
        return self.devices * max(0.0, self.ended - self.started) / 3600


def attempts(home: Path) -> tuple[Attempt, ...]:
    """Return a run's ended attempts whose launch time is known; none if its folder is damaged."""
    try:
        by_number = _read_attempts(home)
    except (RecordError, KeyError, TypeError, ValueError):
        return ()
    # If several attempts have the same launch time, the last attempt includes the others' time.
    by_launch = {by_number[number].started: by_number[number] for number in sorted(by_number)}
    return tuple(sorted(by_launch.values(), key=lambda attempt: attempt.number))


def attempts_problem(home: Path) -> RecordError | None:
    """Return why the attempts at a run cannot be counted; None if they can, or there are none."""
    if not os.path.lexists(home / "job.json") and not any(home.glob("failure-*.json")):
        return None  # No launcher has started it.
    try:
        _read_attempts(home)
    except RecordError as error:
        return error
    except (KeyError, TypeError, ValueError) as error:
        problem = f"{home / 'job.json'} or an outcome beside it is damaged: {error!r}"
        return RecordError(problem, hint=REPEAT)
    return None


def _read_attempts(home: Path) -> dict[int, Attempt]:
    job = read_json(home / "job.json")
    devices = int(job["world"])
    newest = newest_attempt(home, int(job["attempt"]))
    running = None if closed(home, newest) else newest
    outcome = from_json(Outcome, read_json(home / "outcome.json") if finished(home) else {})
    by_number: dict[int, Attempt] = {}
    unclosed = set()  # Preempted or repeated attempts, with no outcome or failure file.
    for number in range(1, newest + 1):
        if number == outcome.attempt:
            launches = (began for _, began, _ in _times_from_lines(home, {number}))
            began = read_tail(home, 0, number).launched or next(launches, None) or outcome.started
            by_number[number] = Attempt(number, devices, began, outcome.ended, succeeded=True)
            continue
        path = home / f"failure-{number}.json"
        failure = from_json(Failure, read_json(path) if path.exists() else {})
        if failure.started is not None and failure.ended is not None:
            began, ended = failure.started, failure.ended
            by_number[number] = Attempt(number, devices, began, ended, succeeded=False)
        elif number != running:
            unclosed.add(number)
    for number, began, ended in _times_from_lines(home, unclosed) if unclosed else ():
        by_number[number] = Attempt(number, devices, began, ended, succeeded=False)
    return by_number


def _times_from_lines(home: Path, numbers: set[int]) -> Iterator[tuple[int, float, float]]:
    """Yield number, begin and end of the attempts ``numbers``, from the lines of rank 0."""
    began: dict[int, float] = {}
    latest: dict[int, float] = {}  # The last time that each attempt recorded.
    for line in read_lines(rank_file(home, 0)):
        number = line.get("attempt", 0)
        if number not in numbers:
            continue
        if number not in began:
            launched = line.get("launched", line["start"] if line.get("span") == "launch" else None)
            if launched is None:
                continue
            began[number] = latest[number] = float(launched)
        if "steps" in line:
            latest[number] += line["seconds"]
        times = (line.get(key) for key in ("end", "at", "ended"))
        latest[number] = max(latest[number], *(at for at in times if at is not None), 0.0)
    for number, start in began.items():
        yield number, start, latest[number]


@dataclass(frozen=True, slots=True)
class AllocationShare:
    """One run in a shared allocation, all devices of which are paid for while the run uses some."""

    job: str
    run: str
    devices: int
    allocation_devices: int  # ``of`` in the file.
    began: float
    ended: float

    @property
    def bought(self) -> float:
        """Device-hours of all devices of the allocation during this run."""
        return self.allocation_devices * (self.ended - self.began) / 3600

    @property
    def idle(self) -> float:
        """Device-hours of the allocation's devices that this run did not use."""
        return (self.allocation_devices - self.devices) * (self.ended - self.began) / 3600


def allocation_shares(folder: Path) -> tuple[AllocationShare, ...]:
    """Return each run's share of a study's shared allocations; empty if no runs shared one."""
    complete = []
    for line in read_lines(folder / ALLOCATION_LOG):
        with suppress(KeyError, TypeError):  # An incomplete line.
            complete.append(AllocationShare(allocation_devices=line.pop("of"), **line))
    return tuple(complete)


def bought(folder: Path) -> float:
    """Return a study's paid device-hours, including failed and outdated runs and idle devices."""
    paid = (
        attempt.device_hours
        for path in folder.glob("*/job.json")
        for attempt in attempts(path.parent)
    )
    return sum(paid, 0.0) + sum(share.idle for share in allocation_shares(folder))
