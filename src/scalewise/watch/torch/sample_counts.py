"""Count the samples of a step, from the loaders' batches and the models' inputs.

A step consists of segments, each of which ends with one optimizer's step. A GAN's step has two. A
batch counts when a model is first called to train with it; its *rows* are the first size of its
first tensor, which a model's input is compared with. If a model is called with some of the rows,
these count. Without a loader, the rows of a model's input are the samples.
"""

import itertools
from collections.abc import Hashable
from typing import Any, NamedTuple


class Batch(NamedTuple):
    """A loader's batch, or what is left of it."""

    samples: int
    rows: int


PendingBatches = dict[Hashable, list[Any]]
"""By loader: the batches fetched and not used yet, None for one of unknown size. Under other keys,
what else decides how the next step is counted.
"""


class SampleCounts:
    """Counts samples when a model trains on them; a batch that is used twice counts once."""

    def __init__(self) -> None:
        self.input_differs = False
        """Whether a model's input had another size than the batch; if so, hooks inspect batches."""
        self.adds_calls = False
        """Whether calls before one backward were added up, although they may share samples."""
        self._last_loader: Hashable = None
        self._pending: PendingBatches = {}
        self._largest_batch = 0
        self._unused = Batch(0, 0)
        """What is left of the current batch: no model has been called with it yet."""
        self._stretches = 1
        """How many stretches of the current batch's sequences were used, each in another step."""
        self._usual_stretches = 1
        """How many stretches the batch before had."""
        self._shares: list[int] = []
        """Samples of the current batch for its next stretches."""
        self._fetched = 0
        """Samples of this segment from loaders."""
        self._batchless: dict[Hashable, int] = {}
        """By model id: samples of this segment's calls that used no new batch of a loader."""
        self._called_since_backward: set[Hashable] = set()
        self._segments: list[tuple[int, int]] = []
        """For each finished segment: samples from loaders, and the largest ``_batchless`` value."""

    def fetched(self, loader: Hashable, samples: int | None, rows: int | None = None) -> None:
        """Add a fetched batch; ``samples`` is None if the batch's size is unknown."""
        self._last_loader = loader
        batch = None if samples is None else Batch(samples, rows or samples)
        self._pending.setdefault(loader, []).append(batch)

    def drop(self, loader: Hashable) -> None:
        """Remove a loader's oldest batch, which was not for training."""
        if self._pending.get(loader):
            self._pending[loader].pop(0)

    def train(self, rows: int | None, model: Hashable = None, *, continues: bool = False) -> None:
        """Count the samples of a training forward, whose input has ``rows`` (None if unknown).

        ``continues`` says that it gets the next stretch of the sequences that an earlier step used.
        """
        if not any(self._pending.values()):
            if continues:
                self._stretches += 1
                self._fetched += self._shares.pop(0) if self._shares else 0
            else:
                self._train_without_batch(rows or 0, model)
            return
        batches = [batches.pop(0) for batches in self._pending.values() if batches]
        batch = self._complete(batches, rows)
        if batch is None:
            self._fetched += rows or 0
            self._unused = Batch(0, 0)
            return
        self._largest_batch = max(self._largest_batch, batch.samples)
        self.input_differs |= rows not in (None, batch.rows) or batch.samples != batch.rows
        self._unused = batch
        # Two loaders give one sample each to a row that mixes them: all count.
        self._fetched += self._use(batch.rows if rows is None or len(batches) > 1 else rows)

    def _complete(self, batches: list[Batch | None], rows: int | None) -> Batch | None:
        """Return the sum of batches; if the input has more rows, with the next ones of a loader."""
        known = [batch for batch in batches if batch is not None]
        if len(known) < len(batches):
            # After the first steps the hooks do not look into batches that equal the input. If the
            # input has more rows, take the largest batch; ``input_differs`` makes them look again.
            largest = self._largest_batch
            return Batch(largest, largest) if rows and rows > largest > 0 else None
        total = Batch(sum(batch.samples for batch in known), sum(batch.rows for batch in known))
        more = self._pending.get(self._last_loader, [])
        while rows is not None and total.rows < rows and more and more[0] is not None:
            batch = more.pop(0)
            total = Batch(total.samples + batch.samples, total.rows + batch.rows)
        return total

    def _use(self, rows: int) -> int:
        """Take rows of the current batch; return the samples that now count."""
        left = self._unused
        if rows < left.rows:
            samples = round(left.samples * rows / left.rows)
            self._unused = Batch(left.samples - samples, left.rows - rows)
            return samples
        self._unused = Batch(0, 0)
        return self._first_share(left.samples)

    def _first_share(self, samples: int) -> int:
        """Return the samples for the first stretch of a batch; keep those for the next ones.

        They are divided among as many stretches as the batch before had.
        """
        samples += sum(self._shares)
        count = self._usual_stretches = self._stretches
        self._stretches = 1
        ends = [samples * (number + 1) // count for number in range(count)]
        self._shares = [end - start for start, end in itertools.pairwise(ends)]
        return ends[0]

    def _train_without_batch(self, rows: int, model: Hashable) -> None:
        if rows and self._unused.rows:
            self._fetched += self._use(rows)
        elif rows:
            self.adds_calls |= model in self._called_since_backward and not self._fetched
            self._called_since_backward.add(model)
            self._batchless[model] = self._batchless.get(model, 0) + rows

    def backward(self) -> None:
        """Note a backward: a later call of the same model gets other samples."""
        self._called_since_backward.clear()

    def end_segment(self) -> int:
        """End a segment; return how many segments the current step has."""
        self._segments.append((self._fetched, max(self._batchless.values(), default=0)))
        self._fetched, self._batchless = 0, {}
        self._called_since_backward.clear()
        return len(self._segments)

    def drop_segment(self) -> None:
        """Forget what this segment has counted: it was validation."""
        self._fetched, self._batchless, self._unused = 0, {}, Batch(0, 0)
        self._called_since_backward.clear()

    def progress(self) -> tuple[int, int]:
        """Return this segment's samples so far: from loaders, and from calls without a batch."""
        return self._fetched, max(self._batchless.values(), default=0)

    def split_segment(self, ends: list[tuple[int, int]]) -> int:
        """End segments where ``progress`` was as given; return how many the current step has."""
        fetched = batchless = 0
        for end in ends:
            self._segments.append((end[0] - fetched, max(end[1] - batchless, 0)))
            fetched, batchless = end
        self._fetched -= fetched
        self._batchless = {
            model: max(samples - batchless, 0) for model, samples in self._batchless.items()
        }
        return len(self._segments)

    def close(self, count: int) -> int:
        """End a step that consists of the first ``count`` segments; return its samples."""
        closed, self._segments = self._segments[:count], self._segments[count:]
        fetched = sum(samples for samples, _ in closed)
        return fetched or max((samples for _, samples in closed), default=0)

    def state(self) -> PendingBatches:
        """Return the state that decides how the next step is counted."""
        state = {loader: list(batches) for loader, batches in self._pending.items() if batches}
        if self._unused.rows:
            state["unused"] = [self._unused]
        if self._stretches > 1 or self._usual_stretches > 1 or self._shares:
            state["stretches"] = [self._stretches, self._usual_stretches, *self._shares]
        return state
