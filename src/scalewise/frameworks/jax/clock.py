"""A clock that measures when a device has finished, without making the training wait."""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any


@dataclass(slots=True)
class Mark:
    """The time at which an array was ready; None until then."""

    at: float | None = None


class ReadyClock:
    """A clock whose marks get their time when an array is ready: JAX has no device events.

    A thread waits for one array after the other, so that the host can run ahead of its devices.
    """

    simulated = False
    now = staticmethod(time.perf_counter)

    def __init__(self) -> None:
        self._array: Any = None
        self._queue: SimpleQueue[tuple[Any, Mark | Event] | None] = SimpleQueue()
        """(array, mark): time the array; (None, event): set the event; None: end the thread."""
        self._thread = Thread(target=self._wait_for_arrays, daemon=True)
        self._thread.start()

    def set_array(self, array: Any) -> None:
        """Set the array that the next mark waits for."""
        self._array = array

    def mark(self) -> Mark:
        array, self._array = self._array, None
        if array is None:  # There is nothing to wait for.
            return Mark(time.perf_counter())
        mark = Mark()
        self._queue.put((array, mark))
        return mark

    def passed(self, mark: Mark) -> bool:
        return mark.at is not None

    def between(self, earlier: Sequence[Mark], later: Sequence[Mark]) -> list[float]:
        # All these marks have passed; ``or 0.0`` is only for the type checker.
        return [(end.at or 0.0) - (start.at or 0.0) for start, end in zip(earlier, later)]

    def settle(self) -> None:
        """Wait until the arrays of all marks so far are ready."""
        done = Event()
        self._queue.put((None, done))
        done.wait()

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()

    def _wait_for_arrays(self) -> None:
        while (item := self._queue.get()) is not None:
            array, mark_or_event = item
            if isinstance(mark_or_event, Event):
                mark_or_event.set()
                continue
            with suppress(Exception):  # The training raises the error when it uses the array.
                array.block_until_ready()
            mark_or_event.at = time.perf_counter()
