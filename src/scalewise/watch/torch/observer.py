"""Derive optimizer steps, their phases and samples from events in a user's training loop.

This module does not import PyTorch: the hooks report events, and the observer decides what they
mean. The *closer* is the optimizer that the loop calls last; a step ends when the closer's ``step``
returns. A step is divided into *laps* without gaps. An activity, such as a forward, is a lap with
the activity's name; a lap between two activities gets its name from ``timeline.GAP_PHASES``.
Validation and checkpoints are *pauses*: their laps do not count as time of the step, and each is
recorded as a span. A *detour* is validation between two batches of one step. If the program calls
``probe.step`` itself (``Watcher.explicit``), steps are observed but not recorded.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any

from scalewise.probe import Row
from scalewise.probe.watcher import Watcher
from scalewise.watch.torch.pauses import Candidate, Pauses
from scalewise.watch.torch.sample_counts import Discarded, PendingBatches, SampleCounts
from scalewise.watch.torch.step_optimizers import OptimizerStep, StepOptimizers
from scalewise.watch.torch.timeline import Timeline

MAX_WITHHELD = 16
"""How many steps of a model that is not known yet wait for a step that shows their samples."""
NESTING = ("input", "forward", "validate", "backward", "sync")
"""A model that is called during one of these activities does not begin another activity."""


@dataclass(frozen=True, slots=True)
class StepTemplate:
    """A typical step: its events, and the lap names and samples that the observer derived."""

    events: list[tuple[Any, ...]]
    names: list[str]
    samples: int
    state: tuple[Hashable, PendingBatches]
    """The observer's state before the step. In another state, equal events may mean other laps."""


class Observer:
    """Records steps and spans; an event's name is the method or attribute that is called for it."""

    def __init__(self, watcher: Watcher, now: Callable[[], float]) -> None:
        self.watcher = watcher
        self.timeline = Timeline(watcher, now)
        self.counts = SampleCounts()
        self.optimizers = StepOptimizers()
        self.pauses = Pauses(self.timeline, self.counts, self.optimizers)
        # Events that need no decision here call the other object directly, which is faster.
        self.begin, self.end = self.timeline.begin, self.timeline.end
        self.created, self.saved = self.optimizers.create, self.pauses.end_checkpoint
        self.take_over = self.optimizers.take_over
        self.in_step = False
        """Whether the current step has a forward with gradients, or a backward."""
        self.steps = 0
        self.last_samples = 0
        self.last_laps: tuple[list[str], list[float]] = ([], [])
        """The names of the last step's laps, and the host's times where laps begin and end."""
        self.trains_in_eval = False
        """Whether a backward followed the forward of a model in eval mode."""
        self._eval_forward: tuple[Candidate, int | None, Hashable] | None = None
        """The last forward of a model in eval mode, its samples and the model."""
        self.step_facts: dict[str, Any] = {}
        """What the hooks learned since the last step; it is recorded with the next step."""
        self._forwards = 0
        """Training forwards since the last backward."""
        self._closure_backward = False
        """Whether a closure has made a backward inside this ``optimizer.step``."""
        self._has_fetched = False
        """Whether a loader has returned a batch since the last optimizer step."""
        self._models: set[Hashable] = set()
        """The models that were called to train since then."""
        self.unseen_model = False
        """Whether a step had a backward, but no call of a model was seen, as there was before."""
        self._has_models = False
        """Whether any step had a call of a model."""
        self._withheld: list[Row] = []
        """Steps of such a model: they get the samples of the first step that shows its samples."""
        self._after_backward = False
        """Whether the last activity was a backward; then a step by hand may have ended."""
        self._possible_ends: list[tuple[int, tuple[int, int]]] = []
        """Where such a step may have ended since the last step: the mark, and the samples."""
        self._untrained_end: int | None = None
        """The mark at the end of a pass over a loader that fed no step before: its batches have had
        no backward. If the next batches come from a loader that did, it was validation."""
        self._syncing = False
        """Whether the gradients of the last forward are reduced over ranks in its backward."""

    # Methods named after events; their docstrings say what has happened.

    def split(self, activity: str) -> None:
        """All gradients are computed; if ranks reduce them, backward becomes ``activity``."""
        timeline, stack = self.timeline, self.timeline.activities
        timeline.lap(stack[-1] if stack else "other")
        if stack and self._syncing:
            timeline.last_activity, stack[-1] = stack[-1], activity
        if timeline.on_change is not None:
            timeline.on_change(activity)

    def fetch(self, source: Hashable) -> None:
        """A loader is asked for a batch, or for an iterator over batches."""
        if self._untrained_end is not None and self.pauses.feeds_earlier_steps(source):
            self._end_untrained_pass()
        self.begin("input")
        self._note_possible_end()
        self._eval_forward = None
        self.pauses.fetch(source, accumulating=self.in_step and not self._forwards)

    def fetched(self, samples: int | None, rows: int | None = None) -> None:
        """The loader has returned a batch; ``rows`` is the first size of its first tensor."""
        self._end_fetch()
        fetch = self.pauses.last_fetch
        fetch.has_batch = self._has_fetched = True
        self.counts.fetched(fetch.source, samples, rows)

    def exhausted(self) -> None:
        """The loader has returned an iterator instead of a batch, or has no more batches."""
        self._end_fetch()
        has_backward = self._after_backward or bool(self._possible_ends)
        if self.in_step and self.steps and self._forwards and not has_backward:
            other_loader = not self.pauses.feeds_earlier_steps(self.pauses.last_fetch.source)
            self._untrained_end = len(self.timeline.names) if other_loader else None

    def forward(
        self,
        rows: int | None,
        training: bool,
        syncing: bool = False,
        model: Hashable = None,
        continues: bool = False,
        is_trained: bool = True,
    ) -> None:
        """A model is called. ``training`` says whether gradients are enabled, ``syncing`` whether
        the backward of this call reduces gradients over ranks, ``continues`` whether an earlier
        step used another stretch of the same sequences, ``is_trained`` whether the model is one of
        those that are trained.
        """
        self._eval_forward = None
        stack = self.timeline.activities
        if stack and stack[-1] in NESTING:  # Inside another model, or recomputed in backward.
            self._syncing |= syncing  # DDP inside another module, such as Fabric's.
            self.begin(stack[-1])
        elif training:
            self._syncing = syncing
            self._begin_training(rows)
            repeated = self._closure_backward and "optimizer" in stack
            self.begin("forward")
            self._note_possible_end()
            if repeated:  # A closure may be called many times for one batch.
                self.counts.repeat_call()
            else:
                self.counts.train(rows, model, continues=continues)
            self._forwards += 1
            if model is not None:
                self._models.add(model)
        else:
            if not self.in_step:
                self.pauses.record_checkpoint()
            validates = not self.in_step or self.pauses.detour is not None
            self.begin("validate" if validates else "forward")
            if validates:
                self.pauses.check(is_trained=is_trained)

    def forward_eval(self, samples: int | None, syncing: bool, model: Hashable) -> None:
        """A model in eval mode is called with gradients; if a backward follows, it is training."""
        stack = self.timeline.activities
        # A call in a closure of the optimizer is always training.
        nested = stack and stack[-1] in (*NESTING, "optimizer")
        self.forward(samples, bool(nested) or self.trains_in_eval, syncing, model)
        candidates = self.pauses.candidates
        if stack[-1] == "validate" and candidates and candidates[-1].end < 0:
            self._eval_forward = candidates[-1], samples, model
            self.counts.repeat_call()

    def forwarded(self) -> None:
        validates = self.timeline.activities[-1] == "validate"
        self.end()
        if validates and self.pauses.candidates:
            self.pauses.candidates[-1].end = len(self.timeline.names)

    def failed(self) -> None:
        """A training forward has raised an exception: its samples may be tried again."""
        if self.timeline.activities[-1] == "forward":
            self.counts.take_back()
            self._forwards = max(self._forwards - 1, 0)
        self.forwarded()

    def backward(self, last_is_unused: bool = False) -> None:
        """A backward begins. ``last_is_unused`` says that the gradients of the one before were set
        to zero without a step, and another batch was fetched.
        """
        stack = self.timeline.activities
        if "backward" not in stack:
            if last_is_unused:
                self.counts.discard_until_backward(self.steps)
            samples, model = self._confirm_eval_forward()
            if model is not None:
                self._models.add(model)
            self._begin_training()
            if not self._forwards and "optimizer" not in stack:
                self.counts.train(samples, model)
            self.counts.backward()
            self._forwards = 0
            self._closure_backward |= "optimizer" in stack
            self.begin("backward")
            self._note_possible_end()
            self._after_backward, self._untrained_end = True, None
        else:
            self.begin("backward")

    def stepped(
        self, optimizer: Hashable, forwards: int = 0, discarded: Iterable[Discarded] = ()
    ) -> None:
        """An optimizer has finished its step: a step of the loop may end here. ``discarded`` are
        those of the ``forwards`` since the step before that no backward has used.
        """
        self.counts.discard(forwards, discarded)
        timeline = self.timeline
        if timeline.activities and timeline.activities[-1] == "optimizer":
            self.end()
        else:  # The begin was not reported: the optimizer gets the time since the last event.
            timeline.lap("optimizer")
            timeline.last_activity = "optimizer"
        self._closure_backward, self._eval_forward = False, None
        has_trained = self.counts.segment_has_calls
        segments = self.counts.end_segment()
        models, self._models = frozenset(self._models), set()
        fetched, self._has_fetched = self._has_fetched, False
        self._has_models |= bool(models)
        has_backward = self._after_backward or bool(self._possible_ends)
        unseen = has_backward and not models and self._has_models
        self.unseen_model |= unseen
        if fetched and not timeline.built:  # Trained without a backward.
            self.pauses.begin_first_step(self.pauses.first_fetch())
        directly = bool(self.optimizers.pending) and not (has_trained or fetched)
        step = OptimizerStep(
            optimizer, len(timeline.names), segments, fetched, models, unseen, directly
        )
        if self.in_step and (load_end := self.optimizers.pop_untrained()) is not None:
            timeline.rename(0, load_end, "checkpoint")  # Loading a checkpoint made that step.
            timeline.record_pause("checkpoint", 0, load_end)
        if ended := self.optimizers.add(step, trained=self.in_step):
            self._close_steps(ended)
        elif self.optimizers.may_end_step(optimizer):
            self.pauses.mark_trained(len(timeline.names))
            self.in_step, self._forwards = False, 0

    def by_hand(self, updates: Hashable, backwards: int) -> None:
        """It turns out that the program updates its weights itself, after so many backwards each
        time; the current step is complete, and contains steps before it.
        """
        ends = self._possible_ends
        ends = ends[len(ends) - backwards :: -backwards][::-1] if len(ends) >= backwards else []
        segments = self.counts.split_segment([samples for _, samples in ends])
        first = segments - len(ends) + 1
        steps = [
            OptimizerStep(updates, mark, first + number, unseen_model=self._has_models)
            for number, (mark, _) in enumerate(ends)
        ]
        self.optimizers.take_over(updates)
        if steps:
            for step in steps:
                self.timeline.rename(step.mark - 1, step.mark, "optimizer", only="other")
            self._close_steps(steps)

    def deleted(self, optimizer: Hashable) -> None:
        """An optimizer is garbage-collected."""
        self.optimizers.delete(optimizer, in_step=self.in_step)

    def saving(self) -> None:
        """A checkpoint begins; between steps it includes the time since the last step."""
        if self.timeline.activities or self.in_step:
            self.begin("checkpoint")
        else:
            self._eval_forward = None
            self.pauses.begin_checkpoint()

    def finish(self) -> None:
        """The program ends: record the last step and the spans after it."""
        timeline = self.timeline
        while timeline.activities:
            self.end()
        if self._untrained_end is not None:
            self._end_untrained_pass()
        training = self.in_step
        if training and self.pauses.detour is not None:  # Validation after an unused backward.
            self.pauses.end_detour()
        if ended := self.optimizers.last_steps():
            self._close_steps(ended)
        if not training:
            self.pauses.settle(before_training=False)
            self.pauses.record_checkpoint()
        self._release(0)
        timeline.end_training()
        if timeline.started:
            self.watcher.span("shutdown", timeline.recorded_until, timeline.now())

    # Called by the event buffer.

    def state(self) -> tuple[Hashable, PendingBatches] | None:
        """Return what decides the meaning of the next events; None if a step may have begun."""
        timeline, pauses, optimizers = self.timeline, self.pauses, self.optimizers
        if timeline.activities or timeline.names or pauses.candidates or self._withheld:
            return None
        if optimizers.closer is None or optimizers.pending:
            return None
        if not timeline.started or pauses.checkpoint_start is not None:
            return None
        return optimizers.closer, self.counts.state()

    def repeat(self, template: StepTemplate, times: list[float], marks: list[Any]) -> None:
        """Add steps with the same events as ``template``, at other times."""
        names, samples = template.names, template.samples
        size = len(names)
        marks = self.timeline.append_steps(times, marks)
        wall_offset, facts = self.watcher.wall_offset, self.step_facts
        rows: list[Row] = []
        for start in range(0, len(times) - 1, size):
            facts["at"] = wall_offset + times[start]
            rows.append((samples, names, marks[start : start + size + 1], facts))
            facts = {}
        self.step_facts = {}
        self.timeline.add_steps(times[0], times[-1], samples * len(rows), len(rows))
        self.steps += len(rows)
        self.last_laps = names, times[-size - 1 :]
        if not self.watcher.explicit:
            self.watcher.add_steps(rows)

    def _end_fetch(self) -> None:
        self.end()
        self.pauses.last_fetch.end = len(self.timeline.names)

    def _end_untrained_pass(self) -> None:
        """Record a pass with training forwards and no backward as validation."""
        end, self._untrained_end = self._untrained_end or 0, None
        if self.timeline.activities or self.optimizers.pending:
            return
        self.pauses.record_untrained_pass(end)
        self.counts.drop_segment()
        self.in_step, self._forwards, self._models = False, 0, set()

    def _begin_training(self, rows: int | None = None) -> None:
        """Note that the current step trains, on an input with so many ``rows``; decide whether its
        earlier laps were a pause.
        """
        timeline, pauses = self.timeline, self.pauses
        if not timeline.started:
            timeline.start()
        if not timeline.built:
            pauses.begin_first_step(pauses.first_fetch(rows))
        pauses.adopt_loader()
        if not self.in_step:
            if pauses.undecided:
                pauses.settle(before_training=True)
            pauses.record_checkpoint()
            self.in_step = True
        elif pauses.detour is not None:
            pauses.end_detour()

    def _note_possible_end(self) -> None:
        """Note that a step by hand may have ended after the last backward, before this activity."""
        if self._after_backward and len(self.timeline.activities) == 1:
            self._after_backward = False
            self._possible_ends.append((len(self.timeline.names), self.counts.progress()))

    def _add_row(self, row: Row, unseen_model: bool) -> None:
        """Record a step; withhold the step of an unknown model until its samples are known."""
        if row[0]:
            self._release(row[0])
        elif (unseen_model or self._withheld) and len(self._withheld) < MAX_WITHHELD:
            self._withheld.append(row)
            return
        else:
            self._release(0)
        if not self.watcher.explicit:
            self.watcher.add_steps([row])

    def _release(self, samples: int) -> None:
        """Record the steps that were withheld, with so many samples each."""
        rows, self._withheld = [(samples, *row[1:]) for row in self._withheld], []
        self.timeline.add_samples(samples * len(rows))
        if rows and not self.watcher.explicit:
            self.watcher.add_steps(rows)

    def _confirm_eval_forward(self) -> tuple[int | None, Hashable]:
        """Treat the last forward in eval mode as training; return its samples and model."""
        if self._eval_forward is None or self._forwards:
            return None, None
        candidate, samples, model = self._eval_forward
        self._eval_forward, self.trains_in_eval = None, True
        self.counts.forget_call()
        self.timeline.rename(candidate.start, candidate.end, "forward")
        self.timeline.last_activity = "forward"
        self.pauses.candidates.remove(candidate)
        return samples, model

    def _close_steps(self, ended: list[OptimizerStep]) -> None:
        """End a step of the loop at the end of each of these optimizer steps."""
        timeline, pauses = self.timeline, self.pauses
        self.optimizers.end_steps(ended[-1])
        mark = segments = 0
        for step in ended:  # After each step, marks are renumbered: the step's end becomes mark 0.
            end, samples = step.mark - mark, self.counts.close(step.segments - segments)
            mark, segments = step.mark, step.segments
            if pauses.checkpoint_start is not None and pauses.checkpoint_start < end:
                pauses.record_checkpoint()  # No training was observed after the checkpoint.
            first, train_start = timeline.skip_pauses(end) if timeline.has_pauses else (0, 0)
            times = timeline.times
            timeline.add_steps(times[train_start], times[end], samples, 1)
            facts, self.step_facts = self.step_facts, {}
            facts["at"] = self.watcher.wall_offset + times[first]
            names, times, marks = timeline.cut(first, end)
            self.last_laps, self.last_samples = (names, times), samples
            pauses.end_step(end)
            timeline.last_activity = ""
            self._forwards = 0
            self.in_step = bool(timeline.names)
            self.steps += 1
            self._add_row((samples, names, marks, facts), step.unseen_model)
        self._possible_ends, self._after_backward = [], False
