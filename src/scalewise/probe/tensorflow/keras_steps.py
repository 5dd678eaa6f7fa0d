"""Derive optimizer steps and their samples from calls of a Keras callback, without importing Keras.

An execution is one call of Keras's training function, on one or several batches. Keras reports its
end in another thread, often too late. So an execution ends here when the next one begins; the
report is used only for the last execution of an epoch. Keras does not report the samples of a
batch, but its loss metric counts them. To read the metric is to wait for the device, so it is read
in the first steps, then once a second and at the end of an epoch.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from scalewise.probe import Row
from scalewise.probe.watcher import FLUSH_SECONDS, Watcher

Laps = tuple[list[str], list[float]]
"""Names of laps, and their marks: the begin of the first lap, then the end of each lap."""


@dataclass(frozen=True, slots=True)
class Execution:
    """Batches that Keras trains on in one call of its training function."""

    first: int
    """The index of the execution's first batch in the epoch."""
    batches: int = 1
    """Batches per execution; the last execution of an epoch may have fewer."""
    epoch_batches: int | None = None
    """Batches of the epoch, or None if the length of the data is unknown."""
    per_step: int = 1
    """Batches whose gradients are accumulated for one optimizer step."""


class Steps:
    """Makes rows (one per optimizer step) and spans from the calls of a callback."""

    def __init__(self, watcher: Watcher, now: Callable[[], float] = time.perf_counter) -> None:
        self.watcher = watcher
        self.count_samples: Callable[[], int | None] = lambda: None
        """Returns the samples of this epoch so far; None if they are not counted."""
        self.implausible_samples = 0
        """A count of at most this many samples per batch is not believed: a custom ``train_step``
        may count 1 per replica, whatever the batch size. 0 with Keras's own ``train_step``."""
        self.count_updates: Callable[[], int | None] = lambda: None
        """Returns the number of optimizer steps so far, in all epochs; None if unknown."""
        self._now = now
        self._names: list[str] = []
        self._marks: list[float] = []
        """Names (``_names``) and marks of the laps since the last batch."""
        self._running: Execution | None = None
        self._reported_end = -1, 0.0
        """The last batch that Keras reported as done, and the time of that report."""
        self._per_step = 1
        self._batches: list[Laps] = []
        """Finished batches whose samples are not known yet."""
        self._row: Row = (0, [], [], {})
        """The optimizer step to which batches are being added."""
        self._accumulated = 0
        """The number of batches in ``_row``."""
        self._epoch_updates: int | None = None
        """The number of optimizer steps before this epoch."""
        self._epoch_batches = 0
        self._samples_before = 0
        """The epoch's samples when they were last read, at the time ``_samples_read_at``."""
        self._samples_read_at = 0.0
        self._batch_size = 0
        self._train_span: list[float] = []
        self._train_counts = (0, 0)
        """Samples and steps since training began or was last interrupted."""
        self._pauses = 0

    def begin_epoch(self) -> None:
        """An epoch begins: batches and samples are counted from zero."""
        self._samples_before, self._reported_end = 0, (-1, 0.0)
        self._epoch_updates, self._epoch_batches = self.count_updates(), 0
        if not self._marks:
            self._marks = [self._now()]
            self.watcher.record_build(self._marks[0])

    def begin_execution(self, execution: Execution) -> None:
        """An execution begins, and so the previous one has ended."""
        if self._running:
            self._lap("step")
            self._split_lap(self._executed_batches(self._running, self._running.batches))
        elif self._marks:
            self._lap("other")
        self._running = None
        steps = (self._accumulated + len(self._batches)) // self._per_step
        is_due = self._now() - self._samples_read_at > FLUSH_SECONDS
        is_urgent = self.watcher.steps + steps >= self.watcher.next_urgent_step
        if self._batches and (is_due or is_urgent):
            self._record(self._read_samples())
            self._stop_if_done()
        self._running, self._per_step = execution, execution.per_step

    def report_end(self, last_batch: int) -> None:
        """Keras reports, in another thread, that an execution has ended with this batch."""
        self._reported_end = last_batch, self._now()

    def end_execution(self) -> None:
        """The last execution of an epoch has ended, or a pause begins."""
        running, self._running = self._running, None
        if running is None:
            return
        last_batch, reported_at = self._reported_end
        has_report = last_batch == running.first + running.batches - 1
        self._lap("step", reported_at if has_report else None)
        expected = running.batches
        if running.epoch_batches is not None:
            expected = min(expected, running.epoch_batches - running.first)
        total = self._read_samples(expected)
        if total is not None and total == len(self._batches) * self._batch_size:
            expected = 0  # Earlier batches account for all samples: this execution was empty.
        self._split_lap(self._executed_batches(running, expected, is_last=True))
        self._record(total)
        self._stop_if_done()

    def pause(self) -> None:
        """A validation or checkpoint begins; one may contain another."""
        self._pauses += 1
        if self._pauses == 1:
            self.end_execution()
            self._end_train()

    def resume(self, name: str) -> None:
        """A validation or checkpoint ends. Its span begins at the end of the last step."""
        self._pauses -= 1
        if self._pauses or not self._marks:
            return
        self._lap(name)
        self.watcher.span(name, *self._marks[-2:])
        if not self._accumulated:
            self._names, self._marks = [], self._marks[-1:]

    def finish(self) -> None:
        """The program ends. Its last batches get the usual size: the count is not read again."""
        self._record(None)
        self._end_train()
        if self._marks:
            self.watcher.span("shutdown", self._marks[-1], self._now())

    def _lap(self, name: str, end: float | None = None) -> None:
        self._names.append(name)
        self._marks.append(self._now() if end is None else max(end, self._marks[-1]))

    def _split_lap(self, count: int) -> None:
        """Split the last lap into ``count`` batches of equal duration; 0 if it trained on none."""
        if not count:
            self._names[-1] = "other"  # Keras only found that the data have ended.
            return
        self._epoch_batches += count
        *before, start, end = self._marks
        edges = [start + (end - start) * part / count for part in range(count)] + [end]
        self._batches.append((self._names, [*before, *edges[:2]]))
        self._batches += [(["step"], edges[part : part + 2]) for part in range(1, count)]
        self._names, self._marks = [], [end]

    def _read_samples(self, running_batches: int = 0) -> int | None:
        """Return the samples since they were last read; None if they are not counted.

        Beside ``_epoch_batches``, the count may include the batches of a running execution.
        """
        self._samples_read_at = self._now()
        samples = self.count_samples()
        if samples is None or (not samples and not self._batch_size):
            return None
        if samples <= (self._epoch_batches + running_batches) * self.implausible_samples:
            return None
        before, self._samples_before = self._samples_before, samples
        return samples - before if samples >= before else None

    def _executed_batches(self, running: Execution, expected: int, *, is_last: bool = False) -> int:
        """Return how many batches an execution had: ``expected``, or if that is uncertain, as many
        as the optimizer counted. Data of unknown length may end within any execution, or before
        it; then Keras starts an empty one. Data may also be longer than an epoch; then even the
        epoch's last execution is full.
        """
        is_single, has_length = running.batches == 1, running.epoch_batches is not None
        is_certain = (is_single and has_length) if is_last else (is_single or has_length)
        if running.per_step > 1 or is_certain:
            return expected
        updates = self.count_updates()
        if updates is None or self._epoch_updates is None:
            return expected
        count = updates - self._epoch_updates - self._epoch_batches
        is_plausible = 0 < count <= running.batches or (count == 0 and self._epoch_batches > 0)
        return count if is_plausible else expected

    def _record(self, total: int | None) -> None:
        """Record the finished batches. ``total`` is the sum of their samples, None if unknown."""
        rows: list[Row] = []
        count = len(self._batches)
        batch_samples = [self._batch_size] * count
        if total is not None and count:
            batch_samples = split_samples(total, count, self._batch_size)
            self._batch_size = batch_samples[0]
        for (names, marks), samples in zip(self._batches, batch_samples):
            row_samples, row_names, row_marks, facts = self._row
            row_marks = (row_marks or marks[:1]) + marks[1:]
            self._row = row_samples + samples, row_names + names, row_marks, facts
            self._accumulated += 1
            if self._accumulated >= self._per_step:
                rows.append((*self._row[:3], {"at": self.watcher.wall(row_marks[0])}))
                self._row, self._accumulated = (0, [], [], {}), 0
        self._batches = []
        if not rows:
            return
        train_samples, train_steps = self._train_counts
        self._train_counts = train_samples + sum(row[0] for row in rows), train_steps + len(rows)
        start = self._train_span[0] if self._train_span else rows[0][2][0]
        self._train_span = [start, rows[-1][2][-1]]
        if not self.watcher.explicit:
            self.watcher.add_steps(rows)

    def _stop_if_done(self) -> None:
        if self.watcher.done:
            self.watcher.stop_program()

    def _end_train(self) -> None:
        samples, steps = self._train_counts
        if steps:
            self.watcher.span("train", *self._train_span, samples=samples, taken=steps)
        self._train_span, self._train_counts = [], (0, 0)


def split_samples(total: int, count: int, batch_size: int) -> list[int]:
    """Return the samples of each batch: full batches and a smaller last one, or equal parts.

    >>> split_samples(50, 4, 16), split_samples(50, 4, 0)
    ([16, 16, 16, 2], [13, 13, 12, 12])
    """
    last = total - (count - 1) * batch_size
    if 0 < last <= batch_size:
        return [batch_size] * (count - 1) + [last]
    size, remainder = divmod(total, count)
    return [size + (index < remainder) for index in range(count)]
