"""What every attempt at a run took: its devices are paid for from launch to end, well or not."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalewise.errors import RecordError
from scalewise.record.allocation_log import stays
from scalewise.record.close import closed
from scalewise.record.rank_tail import newest_attempt, read_tail
from scalewise.record.study_files import finished, read_json
from scalewise.record.write import rank_file


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a run that is over."""

    number: int
    devices: int
    started: float
    ended: float
    well: bool
    """Whether it is the one that was measured; the others were in vain, but for checkpoints."""

    @property
    def device_hours(self) -> float:
        """What was bought for it."""
        return self.devices * max(0.0, self.ended - self.started) / 3600


def attempts(home: Path) -> tuple[Attempt, ...]:
    """Return every attempt at the run in ``home`` that is over; one under way is not.

    An attempt with unknown launch time is left out, and so is a run
    whose small files are damaged.
    """
    try:
        return tuple(_each_launch_once(_attempts(home)))
    except (RecordError, KeyError, TypeError, ValueError):
        return ()


def _attempts(home: Path) -> dict[int, Attempt]:
    job = read_json(home / "job.json")
    devices = int(job["world"])
    newest = newest_attempt(home, int(job["attempt"]))
    under_way = () if closed(home, newest) else (newest,)
    well = read_json(home / "outcome.json") if finished(home) else {}
    by_number: dict[int, Attempt] = {}
    unclosed = set()
    for number in range(1, newest + 1):
        if number == well.get("attempt"):
            began = read_tail(home, 0, number).launched or _launch(home, number) or well["started"]
            by_number[number] = Attempt(number, devices, began, well["ended"], well=True)
        elif span := _failed(home / f"failure-{number}.json"):
            by_number[number] = Attempt(number, devices, *span, well=False)
        elif number not in under_way:
            unclosed.add(number)
    for number, began, ended in _by_its_lines(home, unclosed) if unclosed else ():
        by_number[number] = Attempt(number, devices, began, ended, well=False)
    return by_number


def _failed(path: Path) -> tuple[float, float] | None:
    """Return when a failed attempt began and ended, where its file knows both."""
    values = read_json(path) if path.exists() else {}
    began, ended = values.get("started"), values.get("ended")
    return None if began is None or ended is None else (began, ended)


def _launch(home: Path, number: int) -> float | None:
    """Return when an attempt was launched that another one has followed."""
    return next((began for _, began, _ in _by_its_lines(home, {number})), None)


def _each_launch_once(by_number: dict[int, Attempt]) -> Iterator[Attempt]:
    """Yield attempts in order; of those that one launch has started, the last has all its time."""
    ordered = [by_number[number] for number in sorted(by_number)]
    for index, attempt in enumerate(ordered):
        if not any(later.started == attempt.started for later in ordered[index + 1 :]):
            yield attempt


def _by_its_lines(home: Path, numbers: set[int]) -> Iterator[tuple[int, float, float]]:
    """Yield the begin and end of attempts that are known only from rank 0's lines.

    A preempted attempt is never closed, and a repeated one loses its outcome.
    """
    began: dict[int, float] = {}
    reached: dict[int, float] = {}
    for line in _lines(rank_file(home, 0)):
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


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open("rb") as file:
            for text in file:
                with suppress(ValueError):
                    line = json.loads(text)
                    if isinstance(line, dict):
                        yield line
    except OSError:
        return


def bought(folder: Path) -> float:
    """Return the device-hours that a study's folder has cost so far, idle ones included.

    Everything counts that is over: what failed, and what the study no longer asks for.
    """
    if not folder.is_dir():
        return 0.0
    paid = sum(
        attempt.device_hours
        for path in folder.glob("*/job.json")
        for attempt in attempts(path.parent)
    )
    return paid + sum(stay.idle for stay in stays(folder))
