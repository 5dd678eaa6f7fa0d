"""Count the samples of a step, from the loaders' batches and the models' inputs.

A step consists of segments, each of which ends with one optimizer's step. A GAN's step has two. A
batch counts when a model is first called to train with it; its *rows* are the first size of its
first tensor, which a model's input is compared with. If a model is called with some of the rows,
these count. Without a loader, the rows of a model's input are the samples.
"""

import itertools
from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple


class Batch(NamedTuple):
    """A loader's batch, or what is left of it."""

    samples: int
    rows: int


MAX_CLEARED_SHARE = 0.25
"""Batches whose gradients are cleared unused are skipped if that happens in fewer of the steps."""
Discarded = tuple[int, bool]
"""The index of a forward that was not used, and whether its batch was skipped, too."""


class Credit(NamedTuple):
    """The samples that a training forward has added to its segment."""

    fetched: int = 0
    model: Hashable = None
    batchless: int = 0
    backwards: int = 0
    """Backwards in the segment before it."""


class Segment(NamedTuple):
    """The samples of a finished segment."""

    fetched: int
    """From loaders."""
    batchless: int
    """Of the model with most calls that used no new batch of a loader."""
    adds_calls: bool = False
    """Whether several calls of a model were added up that may share samples: before one backward,
    or beside another model."""
    loaders: frozenset[Hashable] = frozenset()
    """The loaders that gave these samples."""


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
        """Whether calls of a model were added up without a loader, and may share samples."""
        self.rows_unclear = False
        """Whether, without a loader, only some inputs of a model showed how many rows they have."""
        self._loaders: set[Hashable] = set()
        """The loaders whose batches this segment has used."""
        self._trains_with_two = False
        """Whether a step has used batches of several loaders."""
        self._with_rows: set[Hashable] = set()
        self._without_rows: set[Hashable] = set()
        """Models whose inputs showed it, or did not."""
        self._last_loader: Hashable = None
        self._pending: PendingBatches = {}
        self._largest_batch = 0
        self._hides_sizes = False
        """Whether the first batches did not show their sizes: then the model's input does."""
        self._unused = Batch(0, 0)
        """What is left of the current batch: no model has been called with it yet."""
        self._taken_rows = self._failed = 0
        """Rows that the last call took; and samples of a call that failed, which another may take.
        """
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
        self._backwards = 0
        """Backwards of this segment."""
        self.skipped = 0
        """Samples from loaders that the program fetched and did not train on, such as a batch whose
        loss is not finite."""
        self._credits: list[Credit] = []
        """What each training forward of this segment has added."""
        self._until_backward = 0, 0
        """``progress`` at the last backward."""
        self._cleared_steps, self._has_cleared = 0, False
        """Steps in which gradients were cleared unused, and whether this step is one of them."""
        self._most_pending = 1
        """The most batches of a loader that were pending at a forward: more than 1 if it is read
        ahead."""
        self._may_skip = False
        """Whether a forward has had a batch; the first one shows how far a loader is read ahead."""
        self._segments: list[Segment] = []

    def fetched(self, loader: Hashable, samples: int | None, rows: int | None = None) -> None:
        """Add a fetched batch; ``samples`` is None if the batch's size is unknown."""
        self._last_loader = loader
        batch = None if samples is None else Batch(samples, rows or samples)
        self._pending.setdefault(loader, []).append(batch)

    def pending(self, loader: Hashable) -> int:
        """Return how many batches of a loader were fetched and not used yet."""
        return len(self._pending.get(loader, ()))

    def newest_rows(self, loader: Hashable) -> int:
        """Return the rows of a loader's newest batch that was not used; 0 if unknown."""
        batches = self._pending.get(loader)
        return batches[-1].rows if batches and batches[-1] else 0

    def drop(self, loader: Hashable) -> None:
        """Remove a loader's oldest batch, which was not for training."""
        if self._pending.get(loader):
            self._pending[loader].pop(0)

    def train(self, rows: int | None, model: Hashable = None, *, continues: bool = False) -> None:
        """Count the samples of a training forward, whose input has ``rows`` (None if unknown).

        ``continues`` says that it gets the next stretch of the sequences that an earlier step used.
        """
        fetched, batchless = self._fetched, self._batchless.get(model, 0)
        self._train(rows, model, continues=continues)
        added = self._batchless.get(model, 0) - batchless
        self._credits.append(Credit(self._fetched - fetched, model, added, self._backwards))

    def repeat_call(self) -> None:
        """Note a training forward that adds no samples."""
        self._credits.append(Credit())

    def forget_call(self) -> None:
        """Take back ``repeat_call``: the samples of that forward are counted now."""
        if self._credits:
            self._credits.pop()

    def take_back(self) -> None:
        """Take back the last call's samples because the call failed; they are skipped unless the
        next call uses them.
        """
        credit = self._credits.pop()
        if credit.fetched:
            self._unused = Batch(
                self._unused.samples + credit.fetched, self._unused.rows + self._taken_rows
            )
            self._fetched -= credit.fetched
            self._failed = credit.fetched
            self.skipped += credit.fetched
        if credit.model in self._batchless:
            self._batchless[credit.model] -= credit.batchless

    def discard(self, forwards: int, discarded: Iterable[Discarded]) -> None:
        """Subtract the samples of some of this segment's ``forwards``, because no backward has used
        them: of each its index, and whether its batch was skipped, too.
        """
        if forwards != len(self._credits):
            return  # Some calls were not observed.
        for index, has_batch in discarded:
            credit = self._credits[index]
            if has_batch:
                self._fetched -= credit.fetched
                self.skipped += credit.fetched
            self._credits[index] = Credit()
            if credit.model in self._batchless:
                self._batchless[credit.model] -= credit.batchless

    def discard_until_backward(self, steps: int) -> None:
        """Subtract the samples until the last backward: its gradients were cleared without a step.
        But if that happens in many of the ``steps``, the program keeps copies of the gradients.
        """
        before = self._cleared_steps
        self._cleared_steps += not self._has_cleared
        self._has_cleared = True
        if not steps or MAX_CLEARED_SHARE * steps < before:
            return
        fetched, batchless = self._until_backward
        self._fetched -= fetched
        for model in self._batchless:
            self._batchless[model] = max(self._batchless[model] - batchless, 0)
        self._until_backward = 0, 0

    def _train(self, rows: int | None, model: Hashable, *, continues: bool) -> None:
        if not any(self._pending.values()):
            if continues:
                self._stretches += 1
                self._fetched += self._shares.pop(0) if self._shares else 0
            else:
                self._train_without_batch(rows, model)
            return
        self._skip_batches(rows)
        self._loaders.update(loader for loader, batches in self._pending.items() if batches)
        batches = [batches.pop(0) for batches in self._pending.values() if batches]
        # A program may make thousands of loaders, one after the other.
        self._pending = {loader: batches for loader, batches in self._pending.items() if batches}
        if len(batches) > 1 and rows != 1 and any(one and one.rows == rows for one in batches):
            # One sample beside the batch that is the input only says what to read, as a shard.
            batches = [one for one in batches if one is None or one.rows > 1]
        batch = self._complete(batches, rows)
        self._failed = 0
        if batch is None:
            self._fetched += rows or 0
            self._unused, self._taken_rows = Batch(0, 0), rows or 0
            return
        self._largest_batch = max(self._largest_batch, batch.samples)
        self.input_differs |= rows not in (None, batch.rows) or batch.samples != batch.rows
        self._unused = batch
        # Two loaders give one sample each to a row that mixes them: all count.
        self._fetched += self._use(batch.rows if rows is None or len(batches) > 1 else rows)

    def _skip_batches(self, rows: int | None) -> None:
        """Forget pending batches that the program did not use: more than it has read ahead so far,
        and more than the model's input has rows.
        """
        for batches in self._pending.values():
            while self._may_skip and len(batches) > self._most_pending:
                later = sum(batch.rows if batch else self._largest_batch for batch in batches[1:])
                if rows is not None and later < rows:
                    break
                oldest = batches.pop(0)
                self.skipped += oldest.samples if oldest else self._largest_batch
            self._most_pending = max(self._most_pending, len(batches))
        self._may_skip = True

    def _complete(self, batches: list[Batch | None], rows: int | None) -> Batch | None:
        """Return the sum of batches; if the input has more rows, with the next ones of a loader."""
        known = [batch for batch in batches if batch is not None]
        if len(known) < len(batches):
            # After the first steps the hooks do not look into batches that equal the input. If the
            # input has more rows, take the largest batch; ``input_differs`` makes them look again.
            largest = self._largest_batch
            self._hides_sizes |= not largest
            takes_largest = rows and rows > largest and not self._hides_sizes
            return Batch(largest, largest) if takes_largest else None
        total = Batch(sum(batch.samples for batch in known), sum(batch.rows for batch in known))
        more = self._pending.get(self._last_loader, [])
        while rows is not None and total.rows < rows and more and more[0] is not None:
            batch = more.pop(0)
            total = Batch(total.samples + batch.samples, total.rows + batch.rows)
        return total

    def _use(self, rows: int) -> int:
        """Take rows of the current batch; return the samples that now count."""
        left = self._unused
        self._taken_rows = min(rows, left.rows)
        if rows < left.rows:
            samples = round(left.samples * rows / left.rows)
            self._unused = Batch(left.samples - samples, left.rows - rows)
        else:
            samples = self._first_share(left.samples)
            self._unused = Batch(0, 0)
        tried_again = min(samples, self._failed)
        self._failed -= tried_again
        self.skipped -= tried_again
        return samples

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

    def _train_without_batch(self, rows: int | None, model: Hashable) -> None:
        (self._without_rows if rows is None else self._with_rows).add(model)
        if rows and self._unused.rows:
            self._fetched += self._use(rows)
        elif rows:
            self._batchless[model] = self._batchless.get(model, 0) + rows

    def backward(self) -> None:
        """Note a backward: a later call of the same model gets other samples."""
        self._backwards += 1
        self._until_backward = self.progress()

    @property
    def segment_has_calls(self) -> bool:
        """Whether this segment has a training forward or a backward."""
        return bool(self._credits or self._backwards)

    def end_segment(self) -> int:
        """End a segment; return how many segments the current step has."""
        calls = Counter((c.model, c.backwards) for c in self._credits if c.batchless)
        adds_calls = any(count > 1 for count in calls.values())
        if len(self._with_rows) > 1:  # As a GAN's two models.
            counts = Counter(credit.model for credit in self._credits if credit.batchless)
            adds_calls |= any(count > 1 for count in counts.values())
        self._segments.append(Segment(*self.progress(), adds_calls, frozenset(self._loaders)))
        self._loaders.clear()
        self._fetched, self._batchless, self._until_backward = 0, {}, (0, 0)
        self._backwards, self._has_cleared = 0, False
        self._credits.clear()
        return len(self._segments)

    def drop_segment(self) -> None:
        """Forget what this segment has counted: it was validation."""
        self._fetched, self._batchless, self._unused = 0, {}, Batch(0, 0)
        self._loaders.clear()
        self._credits.clear()

    def progress(self) -> tuple[int, int]:
        """Return this segment's samples so far: from loaders, and from calls without a batch."""
        return self._fetched, max(self._batchless.values(), default=0)

    def split_segment(self, ends: list[tuple[int, int]]) -> int:
        """End segments where ``progress`` was as given; return how many the current step has."""
        fetched = batchless = 0
        for end in ends:
            self._segments.append(Segment(end[0] - fetched, max(end[1] - batchless, 0)))
            fetched, batchless = end
        self._fetched -= fetched
        self._batchless = {
            model: max(samples - batchless, 0) for model, samples in self._batchless.items()
        }
        return len(self._segments)

    def close(self, count: int) -> int:
        """End a step that consists of the first ``count`` segments; return its samples."""
        closed, self._segments = self._segments[:count], self._segments[count:]
        if fetched := sum(segment.fetched for segment in closed):
            loaders = frozenset[Hashable]().union(*(segment.loaders for segment in closed))
            further = max(segment.batchless for segment in closed)
            if self._trains_with_two and len(loaders) == 1:
                # The other loader's batches may be kept, as ``itertools.cycle`` does. The ledger of
                # samples says that they count again.
                return fetched + further
            self._trains_with_two |= len(loaders) > 1
            return fetched
        self.adds_calls |= any(segment.adds_calls for segment in closed)
        self.rows_unclear |= bool(self._with_rows & self._without_rows)
        return max((segment.batchless for segment in closed), default=0)

    def state(self) -> PendingBatches:
        """Return the state that decides how the next step is counted."""
        state = {loader: list(batches) for loader, batches in self._pending.items() if batches}
        if self._unused.rows:
            state["unused"] = [self._unused]
        if self.skipped or self._cleared_steps:  # A step in which they grow is not repeated.
            state["thrown away"] = [self.skipped, self._cleared_steps]
        if self._stretches > 1 or self._usual_stretches > 1 or self._shares:
            state["stretches"] = [self._stretches, self._usual_stretches, *self._shares]
        return state
