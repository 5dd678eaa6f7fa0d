"""From events in a stranger's loop to optimizer steps, their phases and samples.

No PyTorch here: the hooks tell what begins and ends, and this file decides what
it means. A step is everything between two ends of the optimizer that closes
the loop's body. Inside it every moment belongs to one lap; what lies between
two activities is named by its neighbours (between forward and backward it is
the loss, and so forward). Validation and checkpoints are pauses: laps that do
not count as time of the step, and spans of the rank's life.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from scalewise.probe import Row
from scalewise.record.spans import PAUSES
from scalewise.watch.guest import Guest
from scalewise.watch.torch.sample_counts import Counts, Standing

BEFORE_BACKWARD = ("", "input", "forward", "optimizer", "checkpoint")
AFTER = {
    **{(last, "backward"): "forward" for last in BEFORE_BACKWARD},
    ("backward", "optimizer"): "optimizer",
}
"""What the time between two activities is, where it is not simply other."""
TEACHERS = 6
"""Forwards without gradients that belong to a step, between the batch of another loader than those
that have fed training and its training; of one that has, all do."""
INSIDE = ("forward", "validate", "backward", "sync")
"""Activities in which the call of a model is nothing of its own."""
CHANGED = 8
"""Steps of another optimizer after which the loop is taken to have changed."""


@dataclass(frozen=True, slots=True)
class Usual:
    """A step that others are like: what was told of it, and what it was understood as."""

    words: list[tuple[Any, ...]]
    names: list[str]
    samples: int
    standing: Standing
    """What it was understood from."""


@dataclass(slots=True)
class Event:
    """Something in the current row that may turn out to be validation."""

    kind: str
    """``fetch`` or ``check``: a forward without gradients."""
    source: Hashable
    start: int
    """The index of the mark at which it began."""
    end: int = -1
    gave: bool = False
    """Whether a fetch gave a batch, and not an iterator or an end."""


@dataclass(frozen=True, slots=True)
class Stepped:
    """The step of an optimizer that ended no step of the loop, as far as is known."""

    optimizer: Hashable
    place: int
    """The index of the mark at which it ended."""
    stretches: int
    """Of samples, up to its end."""


class Observer:
    """Makes rows and spans of what the hooks tell."""

    def __init__(self, guest: Guest, now: Callable[[], float]) -> None:
        self.guest = guest
        self.stack: list[str] = []
        self.in_row = False
        """Whether training has begun in this row: a forward with gradients."""
        self.steps = 0
        self.counted = 0
        """Samples of the last step."""
        self.last_row: tuple[list[str], list[float]] = ([], [])
        """The laps of the last whole step, and their moments by the host's clock."""
        self.follow: Callable[[str], None] | None = None
        """Who wants to know of every change what is going on now."""
        self._now = now
        self._mark: Callable[[], Any] | None = None
        self._names: list[str] = []
        self._times = [now()]
        self._marks = self._times
        self._last = ""
        self.counts = Counts()
        self.steps_inside = False
        """Whether an optimizer was called inside of something else, such as a backward."""
        self.lenient = False
        """Whether a model that is set to evaluate is trained all the same."""
        self._unsure: tuple[Event, int | None, Hashable] | None = None
        """The last forward of a model that is set to evaluate, and what it was called with."""
        self._side: dict[str, Any] = {}
        self._events: list[Event] = []
        self._paused = False
        """Whether there are laps of pauses in this row."""
        self._odd = False
        """Whether something in this row may be no part of a step."""
        self._detour: int | None = None
        """Where, inside a step, a loader was asked that has never fed training."""
        self._asked = Event("fetch", None, 0)
        """What the loader was asked last."""
        self._sources: set[Hashable] = set()
        """Loaders that have fed training."""
        self._forwards = 0
        self._inside = 0
        """Training forwards inside the optimizer's step: those of a closure."""
        self._syncing = False
        """Whether the gradients of the last forward are exchanged in its backward."""
        self._closer: Hashable = None
        self._stepped: list[Stepped] = []
        """Other optimizers since the last step's end, or all while the closer is not known."""
        self._trained = False
        """Whether any of those had something to learn from."""
        self._made: set[Hashable] = set()
        """Optimizers that were made while another one was closing steps."""
        self._train: list[float] = []
        """When the current stretch of training began and its last step ended."""
        self._train_samples = 0
        self._train_steps = 0
        self._saved_from: int | None = None
        self._saved_to = 0
        """Where the laps of a checkpoint begin and end, until it is told of."""
        self._told = self._times[0]
        """The end of the last thing that was told."""
        self._checked = 0.0
        """The end of the last validation that was told."""
        self.quiet = True
        """Whether nothing has happened yet: the first step begins with what happens first."""
        self._built = False
        """Whether it was told that the job is built."""

    def use(self, mark: Callable[[], Any]) -> None:
        """Mark laps in the device's own queue from the next row on; called before the first."""
        self._mark = mark
        self._marks = [mark() for _ in self._times]

    # What the hooks call.

    def begin(self, activity: str) -> None:
        """Something begins; the time before it is named by what it lies between."""
        if self.quiet:
            self._wake()
        stack = self.stack
        self.steps_inside |= activity == "optimizer" and bool(stack)
        self._names.append(stack[-1] if stack else AFTER.get((self._last, activity), "other"))
        self._times.append(self._now())
        if self._mark is not None:
            self._marks.append(self._mark())
        stack.append(activity)
        if self.follow is not None:
            self.follow(activity)

    def end(self) -> None:
        """The innermost activity ends."""
        activity = self.stack.pop()
        self._names.append(activity)
        self._times.append(self._now())
        if self._mark is not None:
            self._marks.append(self._mark())
        if activity != "sync":
            self._last = activity
        if self.follow is not None:
            self.follow(self.stack[-1] if self.stack else "")

    def split(self, activity: str) -> None:
        """The last gradient is there: if they are exchanged, backward does something else now."""
        self._lap(self.stack[-1] if self.stack else "other")
        if self.stack and self._syncing:
            self._last, self.stack[-1] = self.stack[-1], activity
        if self.follow is not None:
            self.follow(activity)

    def fetch(self, source: Hashable) -> None:
        """A loader is asked for a batch, or for an iterator over batches."""
        self.begin("input")
        self._unsure = None
        self._asked = Event("fetch", source, len(self._names))
        self._events.append(self._asked)
        if source not in self._sources:
            self._odd = True
            if self._sources and self.in_row and not self._forwards and len(self.stack) == 1:
                self._detour = self._detour or len(self._names) - 1

    def fetched(self, samples: int | None) -> None:
        """The loader has given a batch."""
        self.exhausted()
        self._asked.gave = True
        self.counts.fetched(self._asked.source, samples)

    def exhausted(self) -> None:
        """The loader has given no batch: an iterator, or its end."""
        self.end()
        self._asked.end = len(self._names)

    def forward(
        self, samples: int | None, training: bool, syncing: bool = False, model: Hashable = None
    ) -> None:
        """A model is called; ``training`` says whether gradients will be wanted.

        One that is called inside another, or once more in backward, is a part of that.
        """
        self._unsure = None
        if self.stack and self.stack[-1] in INSIDE:
            self._syncing |= syncing  # A model in another that exchanges, such as Fabric's.
            self.begin(self.stack[-1])
        elif training:
            self._syncing = syncing
            self._begin_training()
            again = "optimizer" in self.stack and self._inside > 0
            self._inside += "optimizer" in self.stack
            self.begin("forward")
            if not again:  # A closure may be called many times for one batch.
                self.counts.trained(samples, model)
            self._forwards += 1
        else:
            if not self.in_row:
                self._tell_saved()
            checks = not self.in_row or self._detour is not None
            self.begin("validate" if checks else "forward")
            if checks:
                self._events.append(Event("check", None, len(self._names)))
                self._odd = True

    def unsure(self, samples: int | None, syncing: bool, model: Hashable) -> None:
        """A model is called that is set to evaluate; gradients might be wanted all the same.

        A backward will tell; a closure that the optimizer calls is always for training.
        """
        inside = self.stack and self.stack[-1] in (*INSIDE, "optimizer")
        self.forward(samples, bool(inside) or self.lenient, syncing, model)
        if self.stack[-1] == "validate" and self._events and self._events[-1].end < 0:
            self._unsure = self._events[-1], samples, model

    def forwarded(self) -> None:
        """The model has answered."""
        checking = self.stack[-1] == "validate"
        self.end()
        if checking and self._events:
            self._events[-1].end = len(self._names)

    def backward(self) -> None:
        """Gradients are asked for."""
        if "backward" not in self.stack:
            samples, model = self._made_sure()
            self._begin_training()
            if not self._forwards and "optimizer" not in self.stack:
                self.counts.trained(samples, model)
            self.counts.backward()
            self._forwards = 0
        self.begin("backward")

    def _made_sure(self) -> tuple[int | None, Hashable]:
        """Return what the model was called with that is trained though it is set to evaluate."""
        if self._unsure is None or self._forwards:
            return None, None
        event, samples, model = self._unsure
        self._unsure, self.lenient = None, True
        self._rename(event.start, event.end, "forward")
        self._last = "forward"
        self._events.remove(event)
        return samples, model

    def stepped(self, optimizer: Hashable) -> None:
        """An optimizer has done its step: maybe the whole step ends here.

        Where nobody told that it began, it began with the end of what was before.
        """
        if self.stack and self.stack[-1] == "optimizer":
            self.end()
        else:
            self._lap("optimizer")
            self._last = "optimizer"
        self._inside, self._unsure = 0, None
        step = Stepped(optimizer, len(self._names), self.counts.end_stretch())
        if self._closer is None:
            return self._learn(step)
        self._stepped.append(step)
        if optimizer == self._closer:
            return self._close_after([step])
        if [each.optimizer for each in self._stepped].count(optimizer) >= CHANGED:
            self._closer = optimizer
            return self._close_after(self._of_new_ones(optimizer))
        if optimizer in self._made:
            self._between_steps()
        return None

    def made(self, optimizer: Hashable) -> None:
        """An optimizer is made: if training goes on already, maybe it changes."""
        if self._closer is not None:
            self._made.add(optimizer)

    def gone(self, optimizer: Hashable) -> None:
        """An optimizer is no more: the loop that it closed is over."""
        self._made.discard(optimizer)
        if optimizer == self._closer and not self._stepped and not self.in_row:
            self._closer, self._trained = None, False

    def saving(self) -> None:
        """A checkpoint begins; what led to it since the last step belongs to it.

        One checkpoint often is many files: those that no step lies between are one.
        """
        if self.stack or self.in_row:
            return self.begin("checkpoint")
        if self.quiet:
            self._wake()
        self._settle(len(self._names))
        if not self._built:
            self._begin_with(len(self._names), now=True)
        if self._saved_from is None:
            self._saved_from = len(self._names)
        else:
            self._rename(self._saved_from, len(self._names), "checkpoint")
        self._lap("checkpoint")
        return self.stack.append("checkpoint")

    def saved(self) -> None:
        """The checkpoint is written."""
        self.end()
        if not self.stack and self._saved_from is not None:
            self._saved_to = len(self._names)
        elif not self.stack:
            self._pause("checkpoint", len(self._names) - 1, len(self._names))

    def _tell_saved(self) -> None:
        """Tell of the checkpoint before what comes now, if there was one."""
        if self._saved_from is not None:
            start, self._saved_from = self._saved_from, None
            self._pause("checkpoint", start, self._saved_to)

    def side(self, **facts: Any) -> None:
        """Tell something else about the current step."""
        self._side.update(facts)

    def skip(self) -> None:
        """Let the time since the last mark belong to no step."""
        self._times[-1] = self._now()
        if self._mark is not None:
            self._marks[-1] = self._mark()

    @property
    def sources(self) -> set[Hashable]:
        """The loaders that have fed training."""
        return self._sources

    def finish(self) -> None:
        """The program ends: tell of what came after the last step."""
        while self.stack:
            self.end()
        training = self.in_row
        if self._trained and self._closer is None:
            self._close_after(self._stepped[-1:])
        elif new := self._of_new_ones():
            self._close_after(new)
        if not training:
            self._settle(len(self._names))
            self._tell_saved()
        self._end_train()
        if not self.quiet:
            self.guest.span("shutdown", self._told, self._now())

    # How it is understood.

    def _lap(self, name: str) -> None:
        self._names.append(name)
        self._times.append(self._now())
        if self._mark is not None:
            self._marks.append(self._mark())

    def _wake(self) -> None:
        """Begin the first row: whatever was before it is the building of the job."""
        self.quiet = False
        self._times[:] = [self._now()]
        if self._mark is not None:
            self._marks[:] = [self._mark()]
        self._told = self._times[0]

    def _tell_built(self) -> None:
        self._built = True
        self._told = self._times[0]
        self.guest.built(self._times[0])

    def _begin_with(self, place: int, *, now: bool = False) -> None:
        """Begin the first row at this mark, or now: what was before it belongs to the building."""
        if now:
            self._lap("other")
            place = len(self._names)
        for event in self._events:
            if event.gave and event.end <= place:
                self.counts.drop(event.source)
        self._events = [event for event in self._events if event.start >= place]
        self._shift(place)
        del self._names[:place], self._times[:place]
        if self._mark is not None:
            del self._marks[:place]
        self._tell_built()

    def _shift(self, place: int) -> None:
        """Count the marks of events from this one on."""
        for event in self._events:
            event.start, event.end = event.start - place, event.end - place

    def _without_peeks(self) -> int:
        """Return the mark at which the first loop asks for its first batch.

        A batch that somebody only looked at, with an iterator of its own, was before that.
        """
        events = self._events
        if not events or any(event.kind == "check" for event in events):
            return 0
        source = events[-1].source
        asked = [e.start for e in events if e.source == source and not e.gave]
        return asked[-1] if asked else 0

    def _begin_training(self) -> None:
        if self.quiet:
            self._wake()
        if not self._built:
            self._begin_with(self._without_peeks())
        self._adopt()
        if not self.in_row:
            if self._odd:
                self._settle(None)
            if self._saved_from is not None:
                self._tell_saved()
            self.in_row = True
        elif self._detour is not None:
            self._return()

    def _adopt(self) -> None:
        """Take the loader for one that feeds training whose batch is trained on now."""
        if not self._odd:
            return
        fetches = [event for event in self._events if event.kind == "fetch"]
        if fetches and fetches[-1].gave:
            late = [e for e in self._events if e.kind == "check" and e.start >= fetches[-1].end]
            if len(late) <= TEACHERS and self._sources:
                self._sources.add(fetches[-1].source)

    def _return(self) -> None:
        """Training goes on after a validation between two batches of one step."""
        start, self._detour = self._detour or 0, None
        events = [event for event in self._events if event.start > start]
        known = self._sources
        if all(event.source in known for event in events):
            return
        cut = max([event.end for event in events if event.source not in known], default=0)
        cut = next((e.start for e in events if e.source in known and e.start >= cut), cut)
        gone = [event for event in events if event.end <= cut]
        for event in gone:
            if event.gave:
                self.counts.drop(event.source)
        self._events = [event for event in self._events if event not in gone]
        if self._train:
            self._train[1] = self._times[start]
        self._rename(start, cut, "validate", keep=("checkpoint",))
        saved = (place for place in range(start, cut) if self._names[place] == "checkpoint")
        self._pause("validate", start, next(saved, cut))

    def _settle(self, end: int | None) -> None:
        """Decide what of this row was validation; ``end`` if no training follows."""
        events, known = self._events, self._sources
        checks = [e for e in events if e.kind == "check" or (known and e.source not in known)]
        fetches = [e for e in events if e not in checks]
        if end is None and fetches:
            checks = self._without_teachers(checks, fetches[-1])
        if not checks:
            return
        cut = max(check.end for check in checks)
        later = [fetch.start for fetch in fetches if fetch.start >= cut]
        if later:
            cut = later[0]
        elif end is None and checks[-1].kind == "fetch":
            cut = len(self._names)  # A loader that is not for training, a model nobody saw.
        for event in events:
            if event.gave and event.end <= cut:
                self.counts.drop(event.source)
        start = self._stepped[-1].place if self._stepped else 0
        self._rename(start, cut, "validate", keep=("checkpoint",))
        self._pause("validate", start, cut)
        self._events = [fetch for fetch in fetches if fetch.start >= cut]

    def _without_teachers(self, checks: list[Event], fetch: Event) -> list[Event]:
        """Leave out the few forwards between a batch and its training: they are of the step."""
        late = [check for check in checks if check.start >= fetch.end]
        if len(late) > TEACHERS and self._sources and fetch.source not in self._sources:
            return checks
        for event in late:
            self._rename(event.start, event.end, "forward", only="validate")
        return [check for check in checks if check not in late]

    def _rename(
        self, start: int, end: int, name: str, *, keep: tuple[str, ...] = (), only: str = ""
    ) -> None:
        for place in range(start, end):
            if self._names[place] not in keep and (not only or self._names[place] == only):
                self._names[place] = name

    def _pause(self, name: str, start: int, end: int) -> None:
        """Tell of a pause between steps; the stretch of training before it is over."""
        if not self._built:
            self._tell_built()
        self._paused = True
        self._end_train()
        told = self._checked if name == "validate" else 0.0
        while start < end and (self._names[start] != name or self._times[start] < told):
            start += 1  # Another pause, told of already.
        self._told = self._times[end]
        if name == "validate":
            self._checked = self._told
        self.guest.span(name, self._times[start], self._told)

    def _end_train(self) -> None:
        if self._train_steps:
            facts = {"samples": self._train_samples, "taken": self._train_steps}
            self.guest.span("train", self._train[0], self._train[1], **facts)
        self._train, self._train_samples, self._train_steps = [], 0, 0

    def _learn(self, step: Stepped) -> None:
        """Find the optimizer that closes a step: the last before one comes again."""
        if self.in_row and self._stepped and not self._trained:
            self._prepared()
        self._trained |= self.in_row
        if not any(step.optimizer == each.optimizer for each in self._stepped):
            self._stepped.append(step)
            return self._between_steps()
        last = self._stepped[-1]
        self._closer = last.optimizer
        return self._close_after([last, step] if step.optimizer == last.optimizer else [last])

    def _between_steps(self) -> None:
        """Maybe a step has ended here: what comes next may be something else."""
        self._pass(len(self._names))
        self.in_row, self._forwards = False, 0

    def _prepared(self) -> None:
        """What stepped without a gradient made room for the state of a checkpoint.

        PyTorch has an optimizer do such a step before it loads what the state was.
        """
        place, self._stepped = self._stepped[-1].place, []
        self._rename(0, place, "checkpoint")
        self._pause("checkpoint", 0, place)

    def _of_new_ones(self, optimizer: Hashable = None) -> list[Stepped]:
        """Return the steps of optimizers that came after the closer, and of this one."""
        return [e for e in self._stepped if e.optimizer in self._made or e.optimizer == optimizer]

    def _close_after(self, steps: list[Stepped]) -> None:
        """End a step after each of these."""
        self._stepped = []
        place = stretches = 0
        for each in steps:
            self._close(each.place - place, each.stretches - stretches)
            place, stretches = each.place, each.stretches

    def _pass(self, end: int) -> None:
        """What was fetched up to this mark was for training."""
        self._sources |= {each.source for each in self._events if each.gave and each.start <= end}
        self._events = [event for event in self._events if event.start > end]
        self._odd = bool(self._events)

    def _close(self, place: int, stretches: int) -> None:
        """End a step at this mark; what comes after it is the next one's."""
        names, marks, times = self._names, self._marks, self._times
        first = start = 0
        if self._paused:
            pauses = [k for k in range(place) if names[k] in PAUSES]
            first = next((k for k in range(place) if names[k] not in PAUSES), place)
            start = pauses[-1] + 1 if pauses else 0
            self._paused = any(name in PAUSES for name in names[place:])
        if not self._train:
            self._train = [times[start], 0.0]
        self._train[1] = self._told = times[place]
        counted = self.counts.close(stretches)
        self._train_samples += counted
        self._train_steps += 1
        side, self._side = self._side, {}
        side["at"] = self.guest.anchor + times[first]
        if first or place < len(names):
            self._names, self._times = names[place:], times[place:]
            self._marks = self._times if self._mark is None else marks[place:]
            names, times = names[first:place], times[first : place + 1]
            marks = times if self._mark is None else marks[first : place + 1]
        else:
            self._names, self._times = [], times[place:]
            self._marks = self._times if self._mark is None else marks[place:]
        self.last_row = names, times
        self._pass(place)
        self._shift(place)
        self._last = ""
        self._forwards = 0
        self._detour = None
        self.in_row = bool(self._names)
        self.steps += 1
        self.counted = counted
        if not self.guest.explicit:
            self.guest.take([(counted, names, marks, side)])

    def standing(self) -> Standing | None:
        """Return what decides how the next words are understood; nothing inside a step."""
        inside = self.stack or self._names or self._events or self._closer is None or self._stepped
        if inside or self.quiet or self._saved_from is not None:
            return None
        return self.counts.standing()

    def again(self, usual: Usual, times: list[float], marks: list[Any]) -> None:
        """Take the usual step some times more, at other times: every word was the same."""
        names, counted = usual.names, usual.samples
        size = len(names)
        times.insert(0, self._times[0])
        if self._mark is None:
            marks = times
        else:
            marks.insert(0, self._marks[0])
        anchor, side = self.guest.anchor, self._side
        rows: list[Row] = []
        for start in range(0, len(times) - 1, size):
            side["at"] = anchor + times[start]
            rows.append((counted, names, marks[start : start + size + 1], side))
            side = {}
        self._side = {}
        if not self._train:
            self._train = [times[0], 0.0]
        self._train[1] = self._told = times[-1]
        self._train_samples += counted * len(rows)
        self._train_steps += len(rows)
        self.steps += len(rows)
        self.last_row = names, times[-size - 1 :]
        self._times = times[-1:]
        self._marks = self._times if self._mark is None else marks[-1:]
        if not self.guest.explicit:
            self.guest.take(rows)
