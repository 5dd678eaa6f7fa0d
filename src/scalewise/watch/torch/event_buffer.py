"""Buffer the events of the hooks, and process many steps at once.

A hook may cost only a few microseconds, and the training evicts the hook's data from the CPU's
caches. So a hook just appends an event and its time. The observer derives steps from the events; if
a step has the same events as the step before, it gets only the new times.
"""

import time
from collections.abc import Callable
from typing import Any

from scalewise.probe.watcher import FLUSH_SECONDS, Watcher
from scalewise.watch.torch.observer import Observer, StepTemplate

Event = tuple[Any, ...]
"""The name of a method of the observer, and its arguments."""


class EventBuffer:
    """Events that are not processed yet."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._time = time.perf_counter()
        self.observer = Observer(watcher, lambda: self._time)
        self.max_steps = 0  # How many steps may be buffered.
        self.flush_at = 0.0
        """The hooks process the buffer at the first step that ends after this time."""
        self._buffer: list[Any] = []
        """Events and times in turn: an event, its time, the next event, its time, …"""
        self.append: Callable[[tuple[Event, float]], None] = self._buffer.extend
        """Takes an event and its time; a bound method of the list, to save a call per event."""
        self.now: Callable[[], float] = time.perf_counter
        self.on_change: Callable[[], None] = lambda: None
        """Called when ``append`` or ``now`` is replaced."""
        self._marks: list[Any] = []  # A mark is a time of the device's clock.
        self._read_mark: Callable[[], Any] | None = None
        self._mark: Any = None  # The mark of the event that is being processed.
        self._template: StepTemplate | None = None
        self._expected: StepTemplate | None = None
        """The template, if the observer is in the state in which the template's step began."""

    def use_device_clock(self, read_mark: Callable[[], Any]) -> None:
        """Time events by the device's clock too; called before the first step."""

        def now() -> float:
            self._marks.append(read_mark())
            return time.perf_counter()

        self.process()
        self.now, self._read_mark, self._mark = now, read_mark, read_mark()
        self.observer.timeline.use_device_clock(lambda: self._mark)
        self.on_change()

    def follow(self, callback: Callable[[str], None] | None) -> None:
        """Call ``callback`` with each new activity immediately; None returns to buffering."""

        def append_and_process(event_and_time: tuple[Event, float]) -> None:
            self._buffer.extend(event_and_time)
            try:
                self.process()
            except Exception as problem:
                self._watcher.disable(problem)

        self.process()
        self.observer.timeline.on_change = callback
        self.append = self._buffer.extend if callback is None else append_and_process
        self.on_change()

    def add(self, event: Event) -> None:
        """Append an event that happens now."""
        self.append((event, self.now()))

    def skip(self) -> None:
        """Exclude the time since the last event from the step."""
        self.process()
        self._time = time.perf_counter()
        if self._read_mark is not None:
            self._mark = self._read_mark()
        self.observer.timeline.skip()

    def process(self) -> None:
        """Pass all buffered events to the observer, step by step."""
        buffered = self._buffer[:]
        del self._buffer[: len(buffered)]  # Another thread may have appended an event meanwhile.
        events, times, marks = buffered[::2], buffered[1::2], self._marks
        self._marks = []
        if times:
            self.flush_at = times[-1] + FLUSH_SECONDS
        start = 0
        while start < len(events):
            template, end = self._expected, start
            while template and events[end : end + len(template.events)] == template.events:
                end += len(template.events)
            if template and end > start:
                self.observer.repeat(template, times[start:end], marks[start:end])
            else:
                ends = (i for i in range(start, len(events)) if events[i][0] == "stepped")
                end = next(ends, len(events) - 1) + 1
                self._process_step(events[start:end], times[start:end], marks[start:end])
            start = end

    def _process_step(self, events: list[Event], times: list[float], marks: list[Any]) -> None:
        """Pass a step's events to the observer; if the step can repeat, make a template of it."""
        observer = self.observer
        before, steps = observer.state(), observer.steps
        for index, (event, moment) in enumerate(zip(events, times)):
            self._time = moment
            if marks:
                self._mark = marks[index]
            getattr(observer, event[0])(*event[1:])
        names, after = observer.last_laps[0], observer.state()
        # A step can repeat if it leaves the observer in the state in which it began, and if each of
        # its events ended one lap: then the times of a repetition can be assigned by position.
        complete = observer.steps == steps + 1 and len(names) == len(events)
        if complete and before is not None and after == before:
            self._template = StepTemplate(events, names, observer.last_samples, before)
        fits = self._template is not None and after == self._template.state
        self._expected = self._template if fits else None
