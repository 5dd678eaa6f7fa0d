"""From what Keras tells a callback to optimizer steps and their samples; no engine here.

Keras says when it begins to execute a row of batches. That they are done it says in a thread of
its own, so that nobody waits for the device, and often too late: an execution ends here where the
next one begins, and only the end of the last one in a pass is taken from that thread.

How many samples a batch has nobody says; but the metric of the loss has counted them. To ask it is
to wait for the device: this is done for each of the first steps, then once a second and at the end
of a pass, and so no sample is missed.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from scalewise.probe import Row
from scalewise.watch.guest import EVERY, Guest

Laps = tuple[list[str], list[float]]
"""Names of laps, and their marks: one more."""


@dataclass(frozen=True, slots=True)
class Execution:
    """Batches that Keras trains on in one call."""

    first: int
    """The number of its first batch in the pass."""
    together: int = 1
    """How many batches it takes, but for the last ones of a pass."""
    of: int | None = None
    """Batches of the pass, where that is known before its end."""
    per_step: int = 1
    """Batches whose gradients make one step of the optimizer."""

    @property
    def most(self) -> int:
        """How many batches it may have taken."""
        return self.together if self.of is None else min(self.together, self.of - self.first)


class Steps:
    """Makes rows and spans of what a callback is told."""

    def __init__(self, guest: Guest, now: Callable[[], float] = time.perf_counter) -> None:
        self.guest = guest
        self.seen: Callable[[], int | None] = lambda: None
        """Tells how many samples this pass has had so far; nothing where that is not counted."""
        self.doubted = 0
        """What is not believed to be the samples of a batch: a program's own step may count one
        for each replica, whatever the batch. Nothing where Keras's own step counts."""
        self.updates: Callable[[], int | None] = lambda: None
        """Tells how many steps the optimizer has ever done; nothing where it does not say."""
        self._now = now
        self._names: list[str] = []
        self._marks: list[float] = []
        """Of the laps since the last batch."""
        self._running: Execution | None = None
        self._executed = -1, 0.0
        """The last batch that is told to be done, and when."""
        self._per_step = 1
        self._batches: list[Laps] = []
        """Those that are done, and nobody has asked yet how many samples they have."""
        self._row: Row = (0, [], [], {})
        """The step that has got some of its batches."""
        self._micro = 0
        self._updated: int | None = None
        """What the optimizer had done when this pass began."""
        self._done = 0
        """Batches of this pass."""
        self._before = 0
        """Samples of this pass when they were asked for last, at ``_asked``."""
        self._asked = 0.0
        self._usual = 0
        """Samples of most batches."""
        self._train: list[float] = []
        self._trained = (0, 0)
        """Samples and steps of this stretch of training."""
        self._pauses = 0

    def begin(self) -> None:
        """A pass over the data begins: batches and samples are counted from nothing."""
        self._before, self._executed = 0, (-1, 0.0)
        self._updated, self._done = self.updates(), 0
        if not self._marks:
            self._marks = [self._now()]
            self.guest.built(self._marks[0])

    def execute(self, execution: Execution) -> None:
        """An execution begins, and so the one before it is done."""
        if self._running:
            self._lap("step")
            self._cut(self._taken(self._running, self._running.together))
        elif self._marks:
            self._lap("other")
        self._running = None
        if self._due():
            self._tell(self._ask())
            self._leave()
        self._running, self._per_step = execution, execution.per_step

    def executed(self, last: int) -> None:
        """An execution is over whose last batch has this number; told in another thread."""
        self._executed = last, self._now()

    def end(self) -> None:
        """The last execution of a pass is over, or something comes between two of them."""
        running, self._running = self._running, None
        if running is None:
            return
        last, at = self._executed
        self._lap("step", at if last == running.first + running.together - 1 else None)
        total = self._ask(running.most)
        vain = total is not None and total == len(self._batches) * self._usual
        self._cut(self._taken(running, 0 if vain else running.most, last=True))
        self._tell(total)
        self._leave()

    def pause(self) -> None:
        """Something else than training begins."""
        self._pauses += 1
        if self._pauses == 1:
            self.end()
            self._end_train()

    def resume(self, name: str) -> None:
        """It is over: a validation or a checkpoint, with what led to it since the last step."""
        self._pauses -= 1
        if self._pauses or not self._marks:
            return
        self._lap(name)
        self.guest.span(name, *self._marks[-2:])
        if not self._micro:
            self._names, self._marks = [], self._marks[-1:]

    def finish(self) -> None:
        """The program ends; the device is asked nothing any more."""
        self._tell(None)
        self._end_train()
        if self._marks:
            self.guest.span("shutdown", self._marks[-1], self._now())

    def _lap(self, name: str, end: float | None = None) -> None:
        self._names.append(name)
        self._marks.append(self._now() if end is None else max(end, self._marks[-1]))

    def _cut(self, count: int) -> None:
        """Take the last lap as so many batches of one length: nobody sees between them."""
        if not count:
            self._names[-1] = "other"  # Keras has only found that there are no more data.
            return
        self._done += count
        *before, start, end = self._marks
        edges = [start + (end - start) * part / count for part in range(count)] + [end]
        self._batches.append((self._names, [*before, *edges[:2]]))
        self._batches += [(["step"], edges[part : part + 2]) for part in range(1, count)]
        self._names, self._marks = [], [end]

    def _due(self) -> bool:
        """Say whether the batches that are done must be told now."""
        steps = (self._micro + len(self._batches)) // self._per_step
        late = self._now() - self._asked > EVERY
        return bool(self._batches) and (late or self.guest.steps + steps >= self.guest.wanted)

    def _ask(self, begun: int = 0) -> int | None:
        """Return the samples of the batches since the last time, if they are counted.

        So many batches are ``begun`` beside those that are done.
        """
        self._asked = self._now()
        seen = self.seen()
        if seen is None or (not seen and not self._usual):
            return None
        if seen <= (self._done + begun) * self.doubted:
            return None
        before, self._before = self._before, seen
        return seen - before if seen >= before else None

    def _taken(self, running: Execution, usual: int, *, last: bool = False) -> int:
        """Return how many batches an execution took: as usual, unless the optimizer must be asked.

        Data that nobody has counted may end within any execution, or before it: then Keras has
        begun it in vain. Data that go on make the last execution of a pass a whole one, even if
        the pass was to have fewer batches.
        """
        one, counted = running.together == 1, running.of is not None
        if running.per_step > 1 or (one and counted) or ((one or counted) and not last):
            return usual
        now = self.updates()
        if now is None or self._updated is None:
            return usual
        count = now - self._updated - self._done
        sure = 0 < count <= running.together or (count == 0 and self._done > 0)
        return count if sure else usual

    def _tell(self, total: int | None) -> None:
        """Tell of the batches that are done, which have so many samples together."""
        rows: list[Row] = []
        for (names, marks), samples in zip(self._batches, self._shares(total)):
            had, before, at, side = self._row
            self._row = had + samples, before + names, (at or marks[:1]) + marks[1:], side
            self._micro += 1
            if self._micro >= self._per_step:
                at = self._row[2]
                rows.append((*self._row[:3], {"at": self.guest.wall(at[0])}))
                self._row, self._micro = (0, [], [], {}), 0
        self._batches = []
        if not rows:
            return
        had, taken = self._trained
        self._trained = had + sum(row[0] for row in rows), taken + len(rows)
        self._train = [self._train[0] if self._train else rows[0][2][0], rows[-1][2][-1]]
        if not self.guest.explicit:
            self.guest.take(rows)

    def _leave(self) -> None:
        """End the program, if it has done what was asked of it."""
        if self.guest.done:
            self.guest.leave()

    def _shares(self, total: int | None) -> list[int]:
        count = len(self._batches)
        if total is None or not count:
            return [self._usual] * count
        found = shares(total, count, self._usual)
        self._usual = found[0]
        return found

    def _end_train(self) -> None:
        samples, taken = self._trained
        if taken:
            self.guest.span("train", self._train[0], self._train[1], samples=samples, taken=taken)
        self._train, self._trained = [], (0, 0)


def shares(total: int, count: int, usual: int) -> list[int]:
    """Return the samples of each batch: as usual, and the last one what is left.

    >>> shares(50, 4, 16), shares(50, 4, 0)
    ([16, 16, 16, 2], [13, 13, 12, 12])
    """
    last = total - (count - 1) * usual
    if 0 < last <= usual:
        return [usual] * (count - 1) + [last]
    each, rest = divmod(total, count)
    return [each + (place < rest) for place in range(count)]
