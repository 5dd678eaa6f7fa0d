"""Measure from inside the training process; standard library only.

A ``Probe`` keeps one rank's spans (the parts of the job's life) and steps (the
optimizer steps and the phases inside them). A step is a row of laps: each lap
is one mark of the clock and says what the time since the mark before was spent
on, so the phases of a step always add up to the step.

The clock is injected: the host's by default, the device's where a framework
has one, a simulated one in the fake machine.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

from scalewise.record.spans import PAUSES
from scalewise.record.write import RankFile

LINE_STEPS = 100
"""Steps in one line of the file at most."""
WHOLE_STEPS = 1000
"""Steps kept one by one before sampling begins."""

Row = tuple[int, list[str], list[Any], dict[str, Any]]
"""One step: its samples, its laps' names, its marks, and what else is known of it."""


class Clock(Protocol):
    """Something that tells time on the host, and between two marks."""

    simulated: bool
    """Whether it tells a made-up time."""

    def now(self) -> float:
        """Return the host's monotonic seconds."""
        ...

    def mark(self) -> Any:
        """Return a moment; on an accelerator, one in its own queue of work."""
        ...

    def passed(self, mark: Any) -> bool:
        """Say whether this moment has come."""
        ...

    def between(self, earlier: Sequence[Any], later: Sequence[Any]) -> list[float]:
        """Return the seconds from each mark to its later one; all have passed."""
        ...


class HostClock:
    """The host's own monotonic clock."""

    simulated = False
    now = staticmethod(time.perf_counter)
    mark = staticmethod(time.perf_counter)

    def passed(self, mark: float) -> bool:
        return True

    def between(self, earlier: Sequence[float], later: Sequence[float]) -> list[float]:
        return [end - start for start, end in zip(earlier, later)]


class Laps(Protocol):
    """Someone who is told what the time went to."""

    def lap(self, phase: str) -> None:
        """Say that the time since the last mark went to ``phase``."""
        ...


class Unwatched:
    """Takes laps and measures nothing."""

    def lap(self, phase: str) -> None:
        """Let it pass."""


class Probe:
    """One rank's measurements, written to its file as they are made."""

    def __init__(
        self, file: RankFile, clock: Clock | None = None, wall: float | None = None
    ) -> None:
        self.clock: Clock = clock or HostClock()
        self.span_now = ""
        self.ticks = 0
        """Grows while work goes on between steps: the watch then sees no stall."""
        self.steps_done = 0
        self.steps_planned: int | None = None
        self.flush_seconds = 0.0
        self._file = file
        self._anchor = (time.time() if wall is None else wall) - self.clock.now()
        self._lock = Lock()
        self._rows: list[Row] = []
        self._names: list[str] = []
        self._marks: list[Any] = []
        self._mark = self.clock.mark
        self._written = 0

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self._file.path.parent

    @property
    def attempt(self) -> int:
        """Which attempt at the run this is."""
        return self._file.attempt

    def use(self, clock: Clock) -> None:
        """Mark steps by another clock from here on; call it between windows."""
        self.clock = clock
        self._mark = clock.mark

    def wall(self) -> float:
        """Return the wall-clock time, never going backwards."""
        return round(self._anchor + self.clock.now(), 6)

    def note(self, **values: Any) -> None:
        """Write one line of facts."""
        with self._lock:
            self._file.line(values)

    @contextmanager
    def span(self, name: str, **facts: Any) -> Iterator[dict[str, Any]]:
        """Time one part of the job's life; what is put into the yielded dict is kept."""
        self.span_now = name
        self.tick()
        facts |= {"span": name, "start": self.wall()}
        yield facts
        facts["end"] = self.wall()
        self.note(**facts)
        self.span_now = ""

    def tick(self) -> None:
        """Say that work goes on."""
        self.ticks += 1

    def last_words(self, failed: str, kind: str) -> None:
        """Leave the rank's own account of its failure; never fail on top of it."""
        try:
            self.flush()
            self.note(failed=failed, kind=kind, at=self.wall())
        except OSError:
            return

    @property
    def laps_done(self) -> int:
        """How many laps of the current step are done."""
        return len(self._names)

    def start(self) -> None:
        """Begin a row of steps: the first lap counts from here."""
        self._names, self._marks = [], [self._mark()]

    def lap(self, phase: str) -> None:
        """Say that the time since the last mark went to ``phase``."""
        self._marks.append(self._mark())
        self._names.append(phase)

    def step(self, samples: int) -> None:
        """End a step on its last lap; without laps, here."""
        marks = self._marks
        if not self._names:
            marks.append(self._mark())
        self.take([(samples, self._names, marks, {})])
        self._names, self._marks = [], [marks[-1]]

    def take(self, rows: list[Row]) -> None:
        """Take whole steps that were marked elsewhere."""
        self._rows += rows
        self.steps_done += len(rows)
        if len(self._rows) >= LINE_STEPS:
            self.flush()

    def flush(self, spent: Callable[[], float] = time.perf_counter) -> None:
        """Write the steps that have passed, a hundred of one shape to a line.

        ``spent`` tells what it costs the training: all its time here, but only
        its processor time in a thread beside it.
        """
        began = spent()
        with self._lock:
            count = self._passed()
            first = 0
            while first < count:
                last = min(first + LINE_STEPS, count)
                names = self._rows[first][1]
                last = next((k for k in range(first, last) if self._rows[k][1] != names), last)
                self._file.line(self._line(self._rows[first:last]))
                first = last
            # Only the rows that were written go: the training thread may append meanwhile.
            del self._rows[:count]
        self.flush_seconds += spent() - began

    def _passed(self) -> int:
        """Return how many of the waiting rows have passed on the clock."""
        rows = self._rows
        for count in range(len(rows), 0, -1):
            if self.clock.passed(rows[count - 1][2][-1]):
                return count
        return 0

    def _line(self, rows: list[Row]) -> dict[str, Any]:
        """Return rows of one shape as columns."""
        first = self._written
        self._written += len(rows)
        marks = list(zip(*(row[2] for row in rows)))
        columns = {"seconds": self.clock.between(marks[0], marks[-1])}
        for place, name in enumerate(rows[0][1]):
            laps = self.clock.between(marks[place], marks[place + 1])
            if name in PAUSES:
                name, laps = "seconds", [-lap for lap in laps]
            if name in columns:
                laps = [sum(pair) for pair in zip(columns[name], laps)]
            columns[name] = laps
        totals = {name: _short(sum(column)) for name, column in columns.items()}
        samples = [row[0] for row in rows]
        places = range(len(rows))
        few = self._written <= WHOLE_STEPS
        keep = places if few else [place for place in places if kept(first + place)]
        each: dict[str, list[Any]] = {
            name: [int(column[place] * 1e7 + 0.5) / 1e7 for place in keep]
            for name, column in columns.items()
        }
        for name in dict.fromkeys(name for row in rows for name in row[3]):
            each[name] = [_short(rows[place][3].get(name)) for place in keep]
        return {
            "steps": [first, self._written],
            "of": self.steps_planned,
            "seconds": totals.pop("seconds"),
            "samples": sum(samples),
            "phases": totals,
            "index": [first + place for place in keep],
            "each": {**each, "samples": [samples[place] for place in keep]},
        }


def _short(value: Any) -> Any:
    """Round to a tenth of a microsecond; ``round`` itself takes several times as long."""
    return int(value * 1e7 + 0.5) / 1e7 if isinstance(value, float) else value


def kept(index: int) -> bool:
    """Say whether this step is kept one by one: the same on every rank.

    All of the first thousand, then nine hundred in each decade.

    >>> [kept(999), kept(1001), kept(1010), kept(20_010), kept(20_100)]
    [True, False, True, False, True]
    """
    stride = 1
    while index >= WHOLE_STEPS * stride:
        stride *= 10
    return index % stride == 0


_guest: Any = None


def step(samples: int) -> None:
    """End an optimizer step of a program that nobody can watch from outside.

    Does nothing where the program was not started by scalewise:

        from scalewise import probe
        …
        probe.step(samples=len(batch))
    """
    if _guest is None:
        _introduce()
    _guest.step(samples)


def lap(phase: str) -> None:
    """Say that the time since the last lap or step went to ``phase``."""
    if _guest is None:
        _introduce()
    _guest.lap(phase)


def _introduce() -> None:
    """Find out, once, whether anybody measures."""
    from scalewise.watch.guest import explicit

    globals()["_guest"] = explicit()
