"""Decide which laps between two optimizer steps were validation or a checkpoint.

A fetch or a forward without gradients may belong to a step or to validation. The next training
forward decides which, or the end of the program. A mark is the boundary of two laps.
"""

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import pairwise

from scalewise.watch.torch.sample_counts import SampleCounts
from scalewise.watch.torch.step_optimizers import StepOptimizers
from scalewise.watch.torch.timeline import Timeline

MAX_TEACHER_FORWARDS = 6
"""Forwards without gradients between the fetch of a batch and its training may be a teacher model's
and belong to the step. If the loader has not fed training before, more than this are validation.
"""


@dataclass(slots=True, eq=False)
class Candidate:
    """A fetch or a forward in the current step that may turn out to be validation."""

    kind: str
    """``fetch``, or ``check`` for a forward without gradients."""
    source: Hashable  # The loader of a fetch; None for a check.
    start: int
    """The index of the mark at which this fetch or forward began."""
    end: int = -1  # The index of the mark at its end; -1 while it is running.
    has_batch: bool = False
    """Whether a fetch returned a batch, not an iterator or the end of the data."""
    is_trained: bool = True
    """Of a check: whether its model is one of those that are trained."""


def without(items: list[Candidate], others: list[Candidate]) -> list[Candidate]:
    """Return those of ``items`` that are none of ``others``; there may be many thousands."""
    excluded = set(others)
    return [item for item in items if item not in excluded]


class Pauses:
    """Collects checkpoints, and candidates for validation until their kind is decided."""

    def __init__(
        self, timeline: Timeline, counts: SampleCounts, optimizers: StepOptimizers
    ) -> None:
        self.training_loaders: set[Hashable] = set()
        self._adopted: set[Hashable] = set()
        """Loaders that have fed training only since the last step of the loop."""
        self.candidates: list[Candidate] = []
        self.undecided = False
        """Whether some candidate may be validation."""
        self.detour: int | None = None
        """The mark where validation within a step seems to begin: a new loader was read there."""
        self.last_fetch = Candidate("fetch", None, 0)
        self.checkpoint_start: int | None = None
        """The mark at which a checkpoint began that is not recorded yet."""
        self._checkpoint_end: int | None = None
        """The mark at which this checkpoint ended; None while it is being written."""
        self._timeline, self._counts, self._optimizers = timeline, counts, optimizers

    def fetch(self, source: Hashable, *, accumulating: bool) -> None:
        """Note a fetch; ``accumulating`` says whether it follows a backward of the same step."""
        timeline = self._timeline
        self.last_fetch = Candidate("fetch", source, len(timeline.names))
        self.candidates.append(self.last_fetch)
        if source not in self.training_loaders:
            self.undecided = True
            is_outermost = len(timeline.activities) == 1  # Only this fetch is running.
            if self.training_loaders and accumulating and is_outermost:
                # The lap before the fetch belongs to the detour too.
                self.detour = self.detour or len(timeline.names) - 1

    def check(self, *, is_trained: bool) -> None:
        """Note a forward without gradients that may be validation, or compute targets."""
        start = len(self._timeline.names)
        self.candidates.append(Candidate("check", None, start, is_trained=is_trained))
        self.undecided = True

    def begin_first_step(self, start: int) -> None:
        """Begin the first step at this mark: earlier laps belong to building the job."""
        self._drop_batches(start)
        self.candidates = [item for item in self.candidates if item.start >= start]
        self._shift(start)
        self._optimizers.drop_laps(start)
        self._timeline.drop(start)
        self._timeline.record_build()

    def first_fetch(self, rows: int | None = None) -> int:
        """Return the mark of the first fetch for training; earlier batches were only inspected,
        unless one of them, and not the newest, has as many ``rows`` as the model's input.
        """
        if not self.candidates or any(item.kind == "check" for item in self.candidates):
            return 0
        source = self.candidates[-1].source
        if rows and self._counts.newest_rows(source) != rows:
            sources = [item.source for item in self.candidates if item.has_batch]
            source = next((s for s in sources if self._counts.newest_rows(s) == rows), source)
        iterators = [c.start for c in self.candidates if c.source == source and not c.has_batch]
        return iterators[-1] if iterators else 0

    def adopt_loader(self) -> None:
        """Count another loader as a training loader, if training uses the batch last fetched."""
        if not self.undecided:
            return
        fetches = [item for item in self.candidates if item.kind == "fetch"]
        if fetches and fetches[-1].has_batch:
            end = fetches[-1].end
            checks = [c for c in self.candidates if c.kind == "check" and c.start >= end]
            if checks and self._is_read_ahead():
                return  # The batch last fetched was for validation.
            if len(checks) <= MAX_TEACHER_FORWARDS and self.training_loaders:
                if fetches[-1].source not in self.training_loaders:
                    self._adopted.add(fetches[-1].source)
                self.training_loaders.add(fetches[-1].source)

    def _is_read_ahead(self) -> bool:
        """Return whether a batch for training was fetched before the last step ended; or, before
        the first step, before a loader gave several batches for validation.
        """
        batches = Counter(item.source for item in self.candidates if item.has_batch)
        if self.training_loaders:
            counts = self._counts
            return any(counts.pending(one) > batches[one] for one in self.training_loaders)
        pairs = list(pairwise(self.candidates))
        checked = Counter(one.source for one, after in pairs if after.kind == "check")
        ahead = [
            one.source
            for one, after in pairs
            if one.has_batch and after.kind == "fetch" and not checked[one.source]
        ]
        if not ahead or max(checked.values(), default=0) < 2:
            return False
        self.training_loaders.add(ahead[-1])
        return True

    def _adopt_second_loader(self) -> None:
        """Count a new loader as a training loader if it gave one batch, read together with that of
        a training loader, and nothing was validated.
        """
        if any(item.kind == "check" for item in self.candidates):
            return
        batches = Counter(item.source for item in self.candidates if item.has_batch)
        if batches.keys() & self.training_loaders:
            self.training_loaders |= {source for source, count in batches.items() if count == 1}

    def feeds_earlier_steps(self, source: Hashable) -> bool:
        """Return whether this loader fed steps of the loop before the current one."""
        return source in self.training_loaders and source not in self._adopted

    def record_untrained_pass(self, end: int) -> None:
        """Record that everything before mark ``end`` was validation: batches of other loaders,
        which models were called with in training mode, and no backward followed.
        """
        timeline = self._timeline
        self._drop_batches(end)
        self.training_loaders -= self._adopted
        self._adopted.clear()
        self.candidates = [item for item in self.candidates if item.start >= end]
        start = self._optimizers.last_mark
        timeline.rename(start, end, "validate", keep=("checkpoint",))
        timeline.record_pause("validate", start, end)

    def end_detour(self) -> None:
        """Record the validation between two batches of one step, now that training resumes."""
        start, self.detour = self.detour or 0, None
        timeline, loaders = self._timeline, self.training_loaders
        items = [item for item in self.candidates if item.start > start]
        if all(item.source in loaders for item in items):
            return
        # Validation lasts until the next fetch from a training loader.
        end = max([item.end for item in items if item.source not in loaders], default=0)
        end = next((c.start for c in items if c.source in loaders and c.start >= end), end)
        validation = [item for item in items if item.end <= end]
        for item in validation:
            if item.has_batch:
                self._counts.drop(item.source)
        self.candidates = without(self.candidates, validation)
        timeline.extend_training(timeline.times[start])
        timeline.rename(start, end, "validate", keep=("checkpoint",))
        checkpoints = (i for i in range(start, end) if timeline.names[i] == "checkpoint")
        timeline.record_pause("validate", start, next(checkpoints, end))

    def settle(self, *, before_training: bool) -> None:
        """Decide which laps after the last optimizer's step were validation, and record them."""
        loaders = self.training_loaders
        if before_training and loaders:
            self._adopt_second_loader()
        validation = [
            item
            for item in self.candidates
            if item.kind == "check" or (loaders and item.source not in loaders)
        ]
        fetches = without(self.candidates, validation)
        if before_training and fetches:
            validation = self._without_teachers(validation, fetches)
        elif before_training and not loaders:
            validation = self._without_targets(validation)
        if not validation:
            return
        end = max(item.end for item in validation)
        later = [fetch.start for fetch in fetches if fetch.start >= end]
        if later:
            end = later[0]
        elif before_training and validation[-1].kind == "fetch":
            # A loader was read to validate with a model whose calls are not hooked.
            end = len(self._timeline.names)
        self._drop_batches(end, keep=self._read_ahead(fetches, validation))
        start = min(self._optimizers.last_mark, validation[0].start)
        self._timeline.rename(start, end, "validate", keep=("checkpoint",))
        self._timeline.record_pause("validate", start, end)
        self.candidates = [fetch for fetch in fetches if fetch.start >= end]

    def begin_checkpoint(self) -> None:
        """Begin a checkpoint between steps; files saved between two steps are one checkpoint."""
        timeline = self._timeline
        if not timeline.started:
            timeline.start()
        self.settle(before_training=False)
        if not self._timeline.built:
            timeline.lap("other")
            self.begin_first_step(len(timeline.names))
        if self.checkpoint_start is None:
            self.checkpoint_start = len(timeline.names)
        else:
            timeline.rename(self.checkpoint_start, len(timeline.names), "checkpoint")
        self._checkpoint_end = None
        timeline.lap("checkpoint")
        timeline.activities.append("checkpoint")

    def end_checkpoint(self) -> None:
        """End a checkpoint; a checkpoint within a step is recorded immediately."""
        timeline = self._timeline
        timeline.end()
        if timeline.activities:
            return
        if self.checkpoint_start is not None:
            self._checkpoint_end = len(timeline.names)
        else:
            self._timeline.record_pause("checkpoint", len(timeline.names) - 1, len(timeline.names))

    def record_checkpoint(self) -> None:
        """Record the checkpoint that ended before the current activity, if any."""
        if self.checkpoint_start is not None:
            start, self.checkpoint_start = self.checkpoint_start, None
            end = self._checkpoint_end
            self._timeline.record_pause(
                "checkpoint", start, len(self._timeline.names) if end is None else end
            )

    def mark_trained(self, end: int) -> None:
        """Count the loaders of all batches fetched up to mark ``end`` as training loaders."""
        self.training_loaders |= {
            item.source for item in self.candidates if item.has_batch and item.start <= end
        }
        self._adopted.clear()
        self.candidates = [item for item in self.candidates if item.start > end]
        self.undecided = bool(self.candidates)

    def end_step(self, end: int) -> None:
        """End a step at mark ``end``, which becomes mark 0."""
        self.mark_trained(end)
        self._shift(end)
        self.detour = None

    def _without_teachers(
        self, items: list[Candidate], fetches: list[Candidate]
    ) -> list[Candidate]:
        """Return ``items`` without forwards of a teacher model, which follow the last fetch.

        With gradient caching, each of several batches is such a fetch with its forward: then all
        batches of the same iterator are trained on next, and so none of these is validation.
        """
        fetch, loaders = fetches[-1], self.training_loaders
        teachers = [item for item in items if item.start >= fetch.end]
        if any(item.has_batch for item in teachers):
            return items  # Another loader gave batches for validation: this one is read ahead.
        if len(teachers) > MAX_TEACHER_FORWARDS and loaders and fetch.source not in loaders:
            return items
        if teachers:
            ends = [other.start for other in fetches if not other.has_batch]
            begin = max([*ends, *(item.end for item in items if item.kind == "fetch")], default=0)
            batches = (other for other in fetches if other.has_batch and other.start >= begin)
            first = next(batches, fetch)
            teachers = [item for item in items if item.start >= first.end]
        for item in teachers:
            self._timeline.rename(item.start, item.end, "forward", only="validate")
        return without(items, teachers)

    def _without_targets(self, items: list[Candidate]) -> list[Candidate]:
        """Return no ``items`` if they compute targets for training: few forwards, at least one of
        a model that is not trained itself (a target network, a teacher). There is no loader.
        """
        if len(items) > MAX_TEACHER_FORWARDS or all(item.is_trained for item in items):
            return items
        for item in items:
            self._timeline.rename(item.start, item.end, "forward", only="validate")
        return []

    def _read_ahead(
        self, fetches: list[Candidate], validation: list[Candidate]
    ) -> Candidate | None:
        """Return the fetch of a batch for training that validation on other batches followed."""
        if not fetches or not fetches[-1].has_batch:
            return None
        fetch = fetches[-1]
        later = [item for item in validation if item.start >= fetch.end]
        others = later and later[0].kind == "fetch" and any(item.has_batch for item in later)
        return fetch if others and fetch.source in self.training_loaders else None

    def _drop_batches(self, end: int, keep: Candidate | None = None) -> None:
        """Remove the batches fetched before mark ``end`` from the sample counts."""
        for item in self.candidates:
            if item.has_batch and item.end <= end and item is not keep:
                self._counts.drop(item.source)

    def _shift(self, start: int) -> None:
        """Renumber all marks: ``start`` becomes 0."""
        if self.checkpoint_start is not None:
            self.checkpoint_start -= start
            if self._checkpoint_end is not None:
                self._checkpoint_end -= start
        for item in self.candidates:
            item.start, item.end = item.start - start, item.end - start
