"""Measure from inside the training process; standard library only.

A ``Probe`` records one rank's spans (launch, build, train, checkpoint …) and optimizer steps. Marks
(timestamps) divide a step into laps without gaps. The name of a lap is its phase.
"""

import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any, Protocol

from scalewise.record.run_clock import SET_SECONDS, run_clock
from scalewise.record.schema import PAUSES
from scalewise.record.write import RankFile

LINE_STEPS = 100
"""Maximum number of steps in one line of the rank file."""
UNSAMPLED_STEPS = 1000
"""So many first steps all get an entry; of later steps, only those that ``is_recorded`` chooses."""

Row = tuple[int, list[str], list[Any], dict[str, Any]]
"""One step: its samples, lap names, marks (before, between and after laps) and further facts."""


class Clock(Protocol):
    """Gives host time, and timestamps (marks) from the host, a device or a simulator."""

    simulated: bool

    def now(self) -> float:
        """Return the host's monotonic seconds."""

    def mark(self) -> Any:
        """Return a timestamp of this moment; for an accelerator, an event in its stream."""

    def passed(self, mark: Any) -> bool:
        """Return whether the device has reached this mark."""

    def between(self, earlier: Sequence[Any], later: Sequence[Any]) -> list[float]:
        """Return the seconds between each pair of marks, which the device must have reached."""


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
    """Receives the laps of a step."""

    def lap(self, phase: str) -> None:
        """Assign the time since the last mark to ``phase``."""


class Unwatched:
    """Ignores laps and steps: for training that is not measured."""

    def lap(self, phase: str) -> None: ...
    def step(self, samples: int) -> None: ...


class Probe:
    """One rank's measurements, written to its file as they are made."""

    def __init__(
        self, file: RankFile, clock: Clock | None = None, wall: float | None = None
    ) -> None:
        self.folder, self.attempt = file.path.parent, file.attempt
        self.clock: Clock = clock or HostClock()
        self.current_span = ""
        self.ticks = 0
        """Increases while work continues between steps, so that the heartbeat sees no stall."""
        self.steps_done = 0
        self.steps_planned: int | None = None
        self.flush_seconds = 0.0
        """Seconds that writing has taken from the training so far."""
        self._file = file
        # Wall-clock time minus monotonic time: setting the wall clock has no effect.
        self._wall_offset = (run_clock().now() if wall is None else wall) - self.clock.now()
        self._clock_set: list[float] = []
        self._lock = Lock()
        self._rows: list[Row] = []
        self._names: list[str] = []
        self._marks: list[Any] = []
        self._read_mark = self.clock.mark
        self._steps_written = 0

    def use(self, clock: Clock) -> None:
        """Use another clock from now on; call this between two sequences of steps."""
        self.clock = clock
        self._read_mark = clock.mark

    def wall(self) -> float:
        """Return the wall-clock time; it never goes backwards."""
        return round(self._wall_offset + self.clock.now(), 6)

    def note(self, **values: Any) -> None:
        """Write one line of facts."""
        with self._lock:
            self._file.line(values)

    @contextmanager
    def span(self, name: str, **facts: Any) -> Iterator[dict[str, Any]]:
        """Time one part of the job; facts added to the yielded dict are written with the span."""
        self.current_span = name
        self.tick()
        facts |= {"span": name, "start": self.wall()}
        yield facts
        facts["end"] = self.wall()
        self.note(**facts)
        self.current_span = ""

    def tick(self) -> None:
        """Signal progress to the heartbeat."""
        self.ticks += 1

    def note_stall(self, seconds: float) -> None:
        """Note that there was no progress for so long, and where this rank is."""
        position = {"span": self.current_span, "steps": self.steps_done, "laps": self.laps_done}
        self.note(stalled={"seconds": round(seconds, 1), **position})

    def record_failure(self, failed: str, kind: str) -> None:
        """Write the reason (``failed``) and kind of this rank's failure, if that is possible."""
        with suppress(OSError):
            self.flush()
            self.note(failed=failed, kind=kind, at=self.wall())

    def settle(self, seconds: float = math.inf) -> None:
        """Wait until the disk has taken everything: at most ``seconds``, and as it may refuse."""
        with self._lock:
            self._file.settle(seconds)

    @property
    def laps_done(self) -> int:
        """The number of finished laps in the current step."""
        return len(self._names)

    def start(self) -> None:
        """Begin a sequence of steps: the first lap starts now."""
        self._names, self._marks = [], [self._read_mark()]

    def lap(self, phase: str) -> None:
        """Assign the time since the last mark to ``phase``."""
        self._marks.append(self._read_mark())
        self._names.append(phase)

    def step(self, samples: int) -> None:
        """End a step where its last lap ended; if it has no laps, the step ends now."""
        marks = self._marks
        if not self._names:
            marks.append(self._read_mark())
        self.add_rows([(samples, self._names, marks, {})])
        self._names, self._marks = [], [marks[-1]]

    def add_rows(self, rows: list[Row]) -> None:
        """Add complete steps, with marks that the caller has read from the clock."""
        self._rows += rows
        self.steps_done += len(rows)
        if len(self._rows) >= LINE_STEPS:
            self.flush()

    def flush(self, timer: Callable[[], float] = time.perf_counter) -> None:
        """Write the steps that the device has finished. Steps in one line have the same lap names.

        ``timer`` measures what this costs the training; another thread passes its CPU time.
        """
        began = timer()
        with self._lock:
            self._file.write_kept()
            self._note_set_clock()
            # A device passes marks in order, so all steps before a finished step are finished.
            finished = (
                index + 1
                for index in reversed(range(len(self._rows)))
                if self.clock.passed(self._rows[index][2][-1])
            )
            count, first = next(finished, 0), 0
            while first < count:
                end = min(first + LINE_STEPS, count)
                names = self._rows[first][1]
                different = (i for i in range(first, end) if self._rows[i][1] != names)
                end = next(different, end)
                self._file.line(self._line(self._rows[first:end]))
                first = end
            # Delete only the rows that were written: the training thread may append meanwhile.
            del self._rows[:count]
        self.flush_seconds += timer() - began

    def _note_set_clock(self) -> None:
        """Note that the host's wall clock was set, if it was."""
        if self.clock.simulated:
            return
        ahead = time.time() - self.wall() - sum(self._clock_set)
        if abs(ahead) > SET_SECONDS:
            self._clock_set.append(round(ahead, 1))
            self._file.line({"clock_set": self._clock_set})

    def _line(self, rows: list[Row]) -> dict[str, Any]:
        """Return one line of the rank file for steps with the same lap names."""
        first = self._steps_written
        self._steps_written += len(rows)
        columns = self._seconds_by_phase(rows)
        totals = {name: _round(sum(column)) for name, column in columns.items()}
        samples = [row[0] for row in rows]
        indices: Sequence[int] = range(len(rows))
        if self._steps_written > UNSAMPLED_STEPS:
            indices = [index for index in indices if is_recorded(first + index)]
        per_step: dict[str, list[Any]] = {  # Rounded as by ``_round``, but without slow calls.
            name: [int(column[index] * 1e7 + 0.5) / 1e7 for index in indices]
            for name, column in columns.items()
        }
        for name in dict.fromkeys(name for row in rows for name in row[3]):
            per_step[name] = [_round(rows[index][3].get(name)) for index in indices]
        return {
            "steps": [first, self._steps_written],
            "of": self.steps_planned,
            "seconds": totals.pop("seconds"),
            "samples": sum(samples),
            "phases": totals,
            "index": [first + index for index in indices],
            "each": {**per_step, "samples": [samples[index] for index in indices]},
        }

    def _seconds_by_phase(self, rows: list[Row]) -> dict[str, list[float]]:
        """Return each phase's seconds in each step; key ``seconds``: all phases, without pauses."""
        marks = list(zip(*(row[2] for row in rows)))
        columns = {"seconds": self.clock.between(marks[0], marks[-1])}
        for index, name in enumerate(rows[0][1]):
            laps = self.clock.between(marks[index], marks[index + 1])
            if name in PAUSES:
                name, laps = "seconds", [-lap for lap in laps]
            if name in columns:
                laps = [sum(pair) for pair in zip(columns[name], laps)]
            columns[name] = laps
        return columns


def _round(value: Any) -> Any:
    """Round to a tenth of a microsecond; the builtin ``round`` takes several times as long."""
    return int(value * 1e7 + 0.5) / 1e7 if isinstance(value, float) else value


def is_recorded(index: int) -> bool:
    """Return whether a step gets its own entry in the rank file; all ranks choose the same steps.

    These are the first 1,000 steps, then every 10th to 10,000, every 100th to 100,000, and so on.

    >>> [is_recorded(step) for step in (999, 1001, 1010, 20_010, 20_100)]
    [True, False, True, False, True]
    """
    stride = 1
    while index >= UNSAMPLED_STEPS * stride:
        stride *= 10
    return index % stride == 0


def step(samples: int) -> None:
    """End an optimizer step, in a script that scalewise cannot watch from outside.

    ``probe.step(samples=len(batch))`` has no effect if scalewise did not start the program.
    """
    _find_reporter().step(samples)


def lap(phase: str) -> None:
    """Assign the time since the last lap or step to ``phase``."""
    _find_reporter().lap(phase)


@functools.cache
def _find_reporter() -> Any:
    """Return the object that receives the script's calls of ``step`` and ``lap``."""
    from scalewise.probe.watcher import explicit_steps

    return explicit_steps()
