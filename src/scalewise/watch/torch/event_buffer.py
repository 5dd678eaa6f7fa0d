"""What the hooks tell, kept in order and understood later, many steps at once.

A hook may cost no more than a few microseconds, and between two of them the
training has emptied every cache: so it only leaves a word and the time. Steps
of a loop are alike: one that tells the same words as the step before is the
same step again, with other times. Only what differs goes through the observer,
word by word.
"""

import itertools
import time
from collections.abc import Callable
from typing import Any

from scalewise.watch.guest import EVERY, Guest
from scalewise.watch.torch.observer import Observer, Usual

Word = tuple[Any, ...]
"""The observer's method that takes it, and its arguments. Each makes one lap."""


class Tape:
    """The words that are not understood yet."""

    def __init__(self, guest: Guest) -> None:
        self._guest = guest
        self._time = time.perf_counter()
        self.observer = Observer(guest, self._now)
        self.room = 0
        """How many steps may be kept back."""
        self.until = 0.0
        """The moment from which none may."""
        self._kept: list[Any] = []
        """A word, when it was told, the next word …"""
        self.tell: Callable[[tuple[Word, float]], None] = self._kept.extend
        """Takes a word and the moment at which it was told."""
        self.now: Callable[[], float] = time.perf_counter
        self.changed: Callable[[], None] = lambda: None
        """Is called when ``tell`` or ``now`` is another."""
        self._marks: list[Any] = []
        self._mark: Callable[[], Any] | None = None
        self._moment: Any = None
        self._usual: Usual | None = None
        self._expected: Usual | None = None
        """The usual step, if the next one with its words is to be understood as it was."""

    def use(self, mark: Callable[[], Any]) -> None:
        """Mark laps in the device's own queue too; called before the first step."""
        self.understand()
        self.now = self._now_marked
        self._mark, self._moment = mark, mark()
        self.observer.use(lambda: self._moment)
        self.changed()

    def follow(self, told: Callable[[str], None] | None) -> None:
        """Understand each word at once, for somebody who wants to know what goes on now."""
        self.understand()
        self.observer.follow = told
        self.tell = self._kept.extend if told is None else self._tell_at_once
        self.changed()

    def note(self, word: Word) -> None:
        """Keep a word, and when it was told."""
        self.tell((word, self.now()))

    def holds(self, word: Word) -> bool:
        """Say whether a word was told since the last step."""
        since = itertools.takewhile(lambda each: each[0] != "stepped", self._kept[-2::-2])
        return word in since

    def skip(self) -> None:
        """Let the time since the last word belong to no step."""
        self.understand()
        self._time = time.perf_counter()
        if self._mark is not None:
            self._moment = self._mark()
        self.observer.skip()

    def understand(self) -> None:
        """Tell the observer what is on the tape, step by step."""
        words, times, marks = self._kept[::2], self._kept[1::2], self._marks
        self._kept.clear()
        self._marks = []
        if times:
            self.until = times[-1] + EVERY
        start = 0
        while start < len(words):
            usual, end = self._expected, start
            while usual and words[end : end + len(usual.words)] == usual.words:
                end += len(usual.words)
            if usual and end > start:
                self.observer.again(usual, times[start:end], marks[start:end])
            else:
                end = _end_of_step(words, start)
                self._tell(words[start:end], times[start:end], marks[start:end])
            start = end

    def _tell(self, words: list[Word], times: list[float], marks: list[Any]) -> None:
        """Tell the observer word by word, and learn how a usual step looks."""
        observer = self.observer
        before, steps = observer.standing(), observer.steps
        for place, (word, moment) in enumerate(zip(words, times)):
            self._time = moment
            if marks:
                self._moment = marks[place]
            getattr(observer, word[0])(*word[1:])
        names, now = observer.last_row[0], observer.standing()
        whole = observer.steps == steps + 1 and len(names) == len(words)
        if whole and before is not None and now == before:
            self._usual = Usual(words, names, observer.counted, before)
        fits = self._usual is not None and now == self._usual.standing
        self._expected = self._usual if fits else None

    def _tell_at_once(self, told: tuple[Word, float]) -> None:
        self._kept.extend(told)
        try:
            self.understand()
        except Exception as problem:
            self._guest.switch_off(problem)

    def _now_marked(self) -> float:
        assert self._mark is not None
        self._marks.append(self._mark())
        return time.perf_counter()

    def _now(self) -> float:
        return self._time


def _end_of_step(words: list[Word], start: int) -> int:
    """Return the place after the end of the step that begins here, or the end of all words."""
    ends = (place for place in range(start, len(words)) if words[place][0] == "stepped")
    return next(ends, len(words) - 1) + 1
