"""What the hooks tell, kept in order and understood when a step ends.

A hook may cost no more than a few microseconds, so it only leaves a word and
the time. Steps of a loop are alike: one that tells the same words as the step
before is the same step again, with other times. Only what differs goes through
the observer, word by word.
"""

import time
from collections.abc import Callable, Hashable
from typing import Any

from scalewise.frameworks.torch.attach.observer import Observer
from scalewise.probe.guest import Guest

_now = time.perf_counter
Word = tuple[Any, ...]
"""The observer's method that takes it, and its arguments. Each makes one lap."""


class Tape:
    """The words since the last step."""

    def __init__(self, guest: Guest) -> None:
        self._time = time.perf_counter()
        self.observer = Observer(guest, self._now)
        self._words: list[Word] = []
        self._times: list[float] = []
        self._marks: list[Any] = []
        self._keep, self._keep_time = self._words.append, self._times.append
        self._mark: Callable[[], Any] | None = None
        self._moment: Any = None
        self._usual: list[Word] | None = None
        """The words of the last step, if it can be taken as the pattern of the next."""

    def use(self, mark: Callable[[], Any]) -> None:
        """Mark laps in the device's own queue too; called before the first step."""
        self.understand()
        self._mark, self._moment = mark, mark()
        self.observer.use(lambda: self._moment)

    def note(self, *word: Any) -> None:
        """Keep a word, and when it was told."""
        self._keep(word)
        self._keep_time(_now())
        if self._mark is not None:
            self._marks.append(self._mark())
            if self.observer.follow is not None:
                self.understand()

    def stepped(self, optimizer: Hashable) -> None:
        """An optimizer has done its step: understand what led to it."""
        self.note("stepped", optimizer)
        if self._words == self._usual:
            times, marks = self._times.copy(), self._marks
            self._words.clear()
            self._times.clear()
            self._marks = []
            self.observer.again(times, marks)
        else:
            self.understand()

    def skip(self) -> None:
        """Let the time since the last word belong to no step."""
        self.understand()
        self._time = time.perf_counter()
        if self._mark is not None:
            self._moment = self._mark()
        self.observer.skip()

    def understand(self) -> None:
        """Tell the observer what is on the tape, word by word."""
        words, times, marks = self._words.copy(), self._times.copy(), self._marks
        self._words.clear()
        self._times.clear()
        self._marks = []
        observer = self.observer
        before, steps = observer.standing(), observer.steps
        for place, (word, moment) in enumerate(zip(words, times)):
            self._time = moment
            if marks:
                self._moment = marks[place]
            getattr(observer, word[0])(*word[1:])
        alike = before is not None and observer.steps == steps + 1
        alike = alike and observer.standing() == before and len(observer.last_row[0]) == len(words)
        self._usual = words if alike else None

    def _now(self) -> float:
        return self._time
