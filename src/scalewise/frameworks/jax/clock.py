"""When a device has done something, told without making the training wait for it."""

import time
from collections.abc import Sequence
from contextlib import suppress
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any


class Moment:
    """A moment that comes when an array is there."""

    __slots__ = ("at",)

    def __init__(self, at: float | None = None) -> None:
        self.at = at


class ReadyClock:
    """Marks that pass when the arrays they are about are there.

    A thread waits for one after the other and notes when it came, so that the training itself
    may run ahead of its devices. JAX has no marks in the device's own queue.
    """

    simulated = False
    now = staticmethod(time.perf_counter)

    def __init__(self) -> None:
        self._about: Any = None
        self._queue: SimpleQueue[tuple[Any, Moment | Event] | None] = SimpleQueue()
        self._thread = Thread(target=self._wait, daemon=True)
        self._thread.start()

    def about(self, array: Any) -> None:
        """Say what the next mark waits for."""
        self._about = array

    def mark(self) -> Moment:
        array, self._about = self._about, None
        if array is None:  # Nothing is on its way.
            return Moment(time.perf_counter())
        moment = Moment()
        self._queue.put((array, moment))
        return moment

    def passed(self, mark: Moment) -> bool:
        return mark.at is not None

    def between(self, earlier: Sequence[Moment], later: Sequence[Moment]) -> list[float]:
        return [(end.at or 0.0) - (start.at or 0.0) for start, end in zip(earlier, later)]

    def settle(self) -> None:
        """Wait until every mark has passed."""
        done = Event()
        self._queue.put((None, done))
        done.wait()

    def close(self) -> None:
        """Let the thread go."""
        self._queue.put(None)
        self._thread.join()

    def _wait(self) -> None:
        while (item := self._queue.get()) is not None:
            array, waiting = item
            if isinstance(waiting, Event):
                waiting.set()
                continue
            with suppress(Exception):  # What failed is told where the training meets it.
                array.block_until_ready()
            waiting.at = time.perf_counter()
