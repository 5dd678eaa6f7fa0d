"""Decide which optimizer steps end a step of the training loop, if there are several optimizers.

Optimizers of one loop (a GAN's two) step in turn: only the last one, the *closer*, ends the loop's
step. Trainings that follow each other, or take turns, have a closer each. An optimizer trains apart
if its own batch was fetched and no other optimizer's models were called, or if it steps again with
another batch before any closer does.
"""

from collections.abc import Hashable
from dataclasses import dataclass, replace

STEPS_TO_CHANGE = 8
"""After so many steps of another optimizer, that optimizer is assumed to end the loop's steps."""


@dataclass(frozen=True, slots=True)
class OptimizerStep:
    """A finished ``optimizer.step`` since the last step of the loop."""

    optimizer: Hashable
    mark: int
    """The index of the mark (boundary of two laps) at which this optimizer step ended."""
    segments: int
    """How many segments of sample counts the loop's step has until then."""
    fetched: bool = False
    """Whether a loader returned a batch since the optimizer step before."""
    models: frozenset[Hashable] = frozenset()
    """The models that were called to train since then, as far as they are known."""
    unseen_model: bool = False
    """Whether a model that is not known yet was trained."""
    follows_directly: bool = False
    """Whether nothing was trained or fetched since the optimizer step before."""


class Gone:
    """Stands for a deleted optimizer."""


class StepOptimizers:
    """The optimizers of a program, and which of them end the loop's steps."""

    def __init__(self) -> None:
        self.closer: Hashable = None
        """The optimizer that ended the last step of the loop."""
        self.pending: list[OptimizerStep] = []
        """Optimizer steps since the last step of the loop, or since the program began."""
        self._closers: set[Hashable] = set()
        """All optimizers that have ended steps; one that steps with a new batch does so again."""
        self._models: dict[Hashable, frozenset[Hashable]] = {}
        """By optimizer: the models that were called before its last step."""
        self._parts: set[Hashable] = set()
        """Optimizers whose steps were parts of a step that another optimizer ended."""
        self._trained = False
        """Whether a pending step followed a forward or backward."""
        self._idle: set[Hashable] = set()
        """Optimizers that exist and have not stepped yet."""
        self._new_optimizers: set[Hashable] = set()
        """Optimizers that were created after the first step of another optimizer."""
        self._has_batches = False
        """Whether a batch was fetched for the last step of the loop."""
        self._closer_fetches = False
        """Whether it was fetched since the optimizer step before the closer's."""

    @property
    def last_mark(self) -> int:
        """The mark at the end of the last pending step; 0 if no step is pending."""
        return self.pending[-1].mark if self.pending else 0

    def end_steps(self, last: OptimizerStep) -> None:
        """Forget the pending steps up to ``last``, where the loop's last step ended."""
        self.pending = [
            replace(step, mark=step.mark - last.mark, segments=step.segments - last.segments)
            for step in self.pending
            if step.mark > last.mark
        ]
        for optimizers in (self._new_optimizers, self._parts):
            gone = {one for one in optimizers if isinstance(one, Gone)}
            optimizers -= gone - {step.optimizer for step in self.pending}

    def drop_laps(self, count: int) -> None:
        """Renumber the marks: the first ``count`` laps of the timeline were removed."""
        self.pending = [replace(step, mark=max(step.mark - count, 0)) for step in self.pending]

    def create(self, optimizer: Hashable) -> None:
        """Note a new optimizer: if others have stepped, the loop may be about to change."""
        self._idle.add(optimizer)
        if self.closer is not None or self.pending:
            self._new_optimizers.add(optimizer)

    def delete(self, optimizer: Hashable, *, in_step: bool) -> None:
        """Forget a deleted optimizer; if it was the closer, its loop has ended."""
        gone = Gone()  # A new optimizer may get the same id.
        self.pending = [
            replace(step, optimizer=gone) if step.optimizer == optimizer else step
            for step in self.pending
        ]
        if optimizer in self._new_optimizers and self.pending:
            self._new_optimizers.add(gone)
        for optimizers in (self._new_optimizers, self._closers, self._idle, self._parts):
            optimizers.discard(optimizer)
        self._models.pop(optimizer, None)
        if optimizer == self.closer and not self.pending and not in_step:
            self.closer, self._trained = None, False

    def pop_untrained(self) -> int | None:
        """Forget pending steps that trained nothing; return the mark at their end, None if none.

        PyTorch makes such a step to allocate an optimizer's state before it loads a checkpoint.
        """
        if self.closer is not None or not self.pending or self._trained:
            return None
        mark, self.pending = self.last_mark, []
        return mark

    def add(self, step: OptimizerStep, *, trained: bool) -> list[OptimizerStep]:
        """Add an optimizer's step; return the pending steps that end a step of the loop."""
        optimizer = step.optimizer
        self._idle.discard(optimizer)
        if step.follows_directly:  # An optimizer for each parameter, made when it is first updated.
            self._new_optimizers.discard(optimizer)
        alone = self._uses_other_models(step)
        if step.models:
            self._models[optimizer] = step.models
        if self.closer is None:
            self._trained |= trained
            return self._close(self._find_closer(step, alone=alone))
        repeats = optimizer == self.closer and not self.pending and bool(self._parts)
        self.pending.append(step)
        if repeats and self._has_batches and not step.fetched:
            return []  # Such as a regularization in some steps, without a batch of its own.
        if optimizer == self.closer:
            return self._close(self._with_steps_apart([step]))
        own = [other for other in self.pending if other.optimizer == optimizer]
        if step.fetched and (optimizer in self._closers or (alone and self._closer_fetches)):
            return self._close(self._with_steps_apart([one for one in own if one.fetched]))
        has_batches = len(own) > 1 and (alone or all(other.fetched for other in own))
        if has_batches and optimizer not in self._new_optimizers:
            return self._close(own)
        if len(own) >= STEPS_TO_CHANGE:
            return self._close(self._steps_of({*self._new_optimizers, optimizer}))
        return []

    def take_over(self, optimizer: Hashable) -> None:
        """Let this optimizer, or updates by hand, end the loop's steps from now on."""
        self.closer = optimizer
        self._closers.add(optimizer)

    def may_end_step(self, optimizer: Hashable) -> bool:
        """Return whether this optimizer, though it is not the closer, may turn out to be."""
        return self.closer is None or optimizer in self._new_optimizers

    def last_steps(self) -> list[OptimizerStep]:
        """Return the pending steps that end a step of the loop because the program ends."""
        if self.closer is None:
            is_one = len({step.optimizer for step in self.pending}) == 1
            each = is_one or all(step.fetched for step in self.pending)
            return (self.pending if each else self.pending[-1:]) if self._trained else []
        apart = {step.optimizer for step in self.pending if step.fetched} - self._parts
        return self._steps_of(self._new_optimizers | apart)

    def _find_closer(self, step: OptimizerStep, *, alone: bool) -> list[OptimizerStep]:
        """Return the steps that end steps of the loop; none until an optimizer steps again.

        Then the one before it is the closer. But if it steps again without a new batch, the other
        optimizers' steps may be parts of the same step. And an optimizer that is created anew for
        each step (an inner loop's) is no closer if there is another.
        """
        optimizer, earlier = step.optimizer, self.pending
        self.pending = [*earlier, step]
        own = [other for other in earlier if other.optimizer == optimizer]
        if not own:
            apart = alone and step.fetched and earlier
            return self.pending[-2:] if apart else self._finished_trainings()
        is_part = not step.fetched and any(other.fetched for other in earlier)
        has_others = bool(self._idle) or len(own) < len(earlier)
        if is_part and has_others and len(own) < STEPS_TO_CHANGE - 1:
            return []
        last = earlier[-1]
        if len(own) == len(earlier):
            return self.pending
        is_new, old = last.optimizer in self._new_optimizers, self._old_steps()
        if is_new and optimizer not in self._new_optimizers:
            return self._with_steps_apart([*own, step])
        if is_new and old:
            return old
        return [last, step] if optimizer == last.optimizer else [last]

    def _close(self, ended: list[OptimizerStep]) -> list[OptimizerStep]:
        """Note that these steps end steps of the loop, and that the other pending ones do not."""
        if ended:
            closers = {step.optimizer for step in ended}
            self._closers |= closers
            self._parts |= {step.optimizer for step in self.pending} - closers
            self.closer = ended[-1].optimizer
            self._closer_fetches = ended[-1].fetched
            self._has_batches = any(step.fetched for step in [*self.pending, *ended])
        return ended

    def _old_steps(self) -> list[OptimizerStep]:
        """Return the pending steps of the last optimizer that is not new."""
        old = [step for step in self.pending if step.optimizer not in self._new_optimizers]
        return [step for step in old if step.optimizer == old[-1].optimizer]

    def _finished_trainings(self) -> list[OptimizerStep]:
        """Return the pending steps if each optimizer but the last is deleted: short trainings."""
        *earlier, last = self.pending
        has_ended = earlier and not self._idle and all(step.fetched for step in self.pending)
        if has_ended and all(isinstance(step.optimizer, Gone) for step in earlier):
            return [*earlier, last]
        return []

    def _uses_other_models(self, step: OptimizerStep) -> bool:
        """Return whether only models were called that no other optimizer's step has called."""
        if not step.models or step.optimizer in self._new_optimizers:
            return False
        others = [models for key, models in self._models.items() if key != step.optimizer]
        return all(step.models.isdisjoint(models) for models in others)

    def _with_steps_apart(self, ended: list[OptimizerStep]) -> list[OptimizerStep]:
        """Return ``ended``, steps of one optimizer, with those pending steps of other trainings
        that take turns with it: they had batches of their own, and called other models.
        """
        last = ended[-1]
        others = [step for step in self.pending if step.optimizer != last.optimizer]
        is_apart = last.fetched and all(
            step.models and step.models.isdisjoint(last.models) for step in others
        )
        if not is_apart or not last.models:
            return ended
        return [step for step in self.pending if step in ended or step.fetched]

    def _steps_of(self, optimizers: set[Hashable]) -> list[OptimizerStep]:
        return [step for step in self.pending if step.optimizer in optimizers]
