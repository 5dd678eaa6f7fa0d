"""The laps (timed parts) of the current step, between marks; and spans of training and pauses."""

from collections.abc import Callable
from typing import Any

from scalewise.probe.watcher import Watcher
from scalewise.record.schema import PAUSES

BEFORE_BACKWARD = ("", "input", "forward", "optimizer", "checkpoint")
GAP_PHASES = {
    **{(last, "backward"): "forward" for last in BEFORE_BACKWARD},
    ("backward", "optimizer"): "optimizer",
}
"""The phase of the time between two activities, ``other`` if absent. A loss counts as forward."""


class Timeline:
    """Laps since the last step ended. Lap ``i`` begins at mark ``i`` and ends at mark ``i + 1``."""

    def __init__(self, watcher: Watcher, now: Callable[[], float]) -> None:
        self._watcher = watcher
        self.now = now
        self.names: list[str] = []
        self.times = [now()]
        """The host's times at the marks; there is one mark more than laps."""
        self.marks: list[Any] = self.times
        """The device clock's times at the marks; without that clock, the same list as ``times``."""
        self.activities: list[str] = []
        """The running activities, the innermost last."""
        self.last_activity = ""
        self.on_change: Callable[[str], None] | None = None
        """Called with the innermost activity ("" if none) whenever this activity changes."""
        self.started = False
        """Whether any event has been observed; the first one starts the first step."""
        self.has_pauses = False
        self.recorded_until = self.times[0]  # The end of the last step or pause.
        self.nested_optimizer = False
        """Whether an optimizer was called inside another activity, such as a backward."""
        self._read_mark: Callable[[], Any] | None = None
        self.built = False  # Whether the end of the job's build is recorded.
        self._train_span: list[float] = []
        """Start of the current span of training, and end of its last step."""
        self._samples = self._steps = 0
        """Samples and steps of the current span of training."""
        self._validated_until = 0.0

    def use_device_clock(self, read_mark: Callable[[], Any]) -> None:
        """Time laps by the device's clock too; called before the first step."""
        self._read_mark = read_mark
        self.marks = [read_mark() for _ in self.times]

    def start(self) -> None:
        """Start the first step now; the time before belongs to building the job."""
        self.started = True
        self.skip()
        self.recorded_until = self.times[0]

    # ``begin`` and ``end`` handle most events. They repeat the lines of ``lap``, because calling it
    # would slow the program down.

    def begin(self, activity: str) -> None:
        """End the lap before an activity (see ``GAP_PHASES``), and begin the activity."""
        if not self.started:
            self.start()
        stack = self.activities
        self.nested_optimizer |= activity == "optimizer" and bool(stack)
        gap = stack[-1] if stack else GAP_PHASES.get((self.last_activity, activity), "other")
        self.names.append(gap)
        self.times.append(self.now())
        if self._read_mark is not None:
            self.marks.append(self._read_mark())
        stack.append(activity)
        if self.on_change is not None:
            self.on_change(activity)

    def end(self) -> None:
        activity = self.activities.pop()
        self.names.append(activity)
        self.times.append(self.now())
        if self._read_mark is not None:
            self.marks.append(self._read_mark())
        if activity != "sync":
            self.last_activity = activity
        if self.on_change is not None:
            self.on_change(self.activities[-1] if self.activities else "")

    def lap(self, name: str) -> None:
        """Assign the time since the last mark to the phase ``name``."""
        self.names.append(name)
        self.times.append(self.now())
        if self._read_mark is not None:
            self.marks.append(self._read_mark())

    def skip(self) -> None:
        """Move the last mark to now: the time since then belongs to no step."""
        self.times[-1] = self.now()
        if self._read_mark is not None:
            self.marks[-1] = self._read_mark()

    def rename(
        self, start: int, end: int, name: str, *, keep: tuple[str, ...] = (), only: str = ""
    ) -> None:
        """Rename laps ``start`` … ``end - 1``: all except ``keep``, or just laps named ``only``."""
        for index in range(start, end):
            if self.names[index] not in keep and (not only or self.names[index] == only):
                self.names[index] = name

    def drop(self, end: int) -> None:
        """Remove the laps before mark ``end``."""
        del self.names[:end], self.times[:end]
        if self._read_mark is not None:
            del self.marks[:end]

    def skip_pauses(self, end: int) -> tuple[int, int]:
        """Return the first lap before mark ``end`` that is no pause; and the last pause's end."""
        names = self.names
        pauses = [index for index in range(end) if names[index] in PAUSES]
        first = next((index for index in range(end) if names[index] not in PAUSES), end)
        self.has_pauses = any(name in PAUSES for name in names[end:])
        return first, pauses[-1] + 1 if pauses else 0

    def cut(self, first: int, end: int) -> tuple[list[str], list[float], list[Any]]:
        """Remove the laps before mark ``end``; return names, times, marks from lap ``first`` on."""
        names, times, marks = self.names, self.times, self.marks
        complete = not first and end == len(names)
        self.names, self.times = names[end:], times[end:]
        self.marks = self.times if self._read_mark is None else marks[end:]
        if not complete:
            names, times = names[first:end], times[first : end + 1]
            marks = times if self._read_mark is None else marks[first : end + 1]
        return names, times, marks

    def append_steps(self, times: list[float], marks: list[Any]) -> list[Any]:
        """Continue the timeline after complete steps; return the marks of these steps.

        The last time and mark before the steps are inserted in front of ``times`` and ``marks``.
        """
        times.insert(0, self.times[0])
        if self._read_mark is None:
            marks = times
        else:
            marks.insert(0, self.marks[0])
        self.times = times[-1:]
        self.marks = self.times if self._read_mark is None else marks[-1:]
        return marks

    def record_build(self) -> None:
        """Record that the job was built when the first lap began."""
        self.built = True
        self.recorded_until = self.times[0]
        self._watcher.record_build(self.times[0])

    def add_steps(self, start: float, end: float, samples: int, steps: int) -> None:
        """Add steps to the current span of training; a pause before them begins a new span."""
        if self._train_span and start > self._train_span[1]:
            self.end_training()
        if not self._train_span:
            self._train_span = [start, 0.0]
        self._train_span[1] = self.recorded_until = end
        self._samples += samples
        self._steps += steps

    def add_samples(self, samples: int) -> None:
        """Add samples of steps that were added before their samples were known."""
        self._samples += samples

    def extend_training(self, end: float) -> None:
        """Move the end of the current span of training, if any, to a time within a step."""
        if self._train_span:
            self._train_span[1] = end

    def end_training(self) -> None:
        """Write the current span of training, if it has steps."""
        if self._steps:
            facts = {"samples": self._samples, "taken": self._steps}
            self._watcher.span("train", self._train_span[0], self._train_span[1], **facts)
        self._train_span, self._samples, self._steps = [], 0, 0

    def record_pause(self, name: str, start: int, end: int) -> None:
        """Write a pause between marks ``start`` and ``end``; it ends the span of training."""
        if not self.built:
            self.record_build()
        self.has_pauses = True
        self.end_training()
        earliest = self._validated_until if name == "validate" else 0.0
        # Skip laps of another kind, and laps of validation that was already recorded.
        while start < end and (self.names[start] != name or self.times[start] < earliest):
            start += 1
        self.recorded_until = self.times[end]
        if name == "validate":
            self._validated_until = self.recorded_until
        self._watcher.span(name, self.times[start], self.recorded_until)
