"""Decide which optimizer ends a step of the training loop, if the loop has several optimizers."""

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


class StepOptimizers:
    """The optimizers of a program; the closer is the optimizer whose step ends the loop's step."""

    def __init__(self) -> None:
        self.closer: Hashable = None
        self.pending: list[OptimizerStep] = []
        """Optimizer steps since the last step of the loop, or since the program began."""
        self._trained = False
        """Whether a pending step followed a forward or backward."""
        self._new_optimizers: set[Hashable] = set()
        """Optimizers that were created when there was a closer already."""

    @property
    def last_mark(self) -> int:
        """The mark at the end of the last pending step; 0 if no step is pending."""
        return self.pending[-1].mark if self.pending else 0

    def drop_laps(self, count: int) -> None:
        """Renumber the marks: the first ``count`` laps of the timeline were removed."""
        self.pending = [replace(step, mark=max(step.mark - count, 0)) for step in self.pending]

    def create(self, optimizer: Hashable) -> None:
        """Note a new optimizer: if there is a closer, the loop may be about to change."""
        if self.closer is not None:
            self._new_optimizers.add(optimizer)

    def delete(self, optimizer: Hashable, *, in_step: bool) -> None:
        """Forget a deleted optimizer; if it was the closer, its loop has ended."""
        self._new_optimizers.discard(optimizer)
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
        if self.closer is None:  # When an optimizer steps again, the one before it is the closer.
            self._trained |= trained
            if all(step.optimizer != other.optimizer for other in self.pending):
                self.pending.append(step)
                return []
            last = self.pending[-1]
            self.closer = last.optimizer
            return [last, step] if step.optimizer == last.optimizer else [last]
        self.pending.append(step)
        if step.optimizer == self.closer:
            return [step]
        if [other.optimizer for other in self.pending].count(step.optimizer) < STEPS_TO_CHANGE:
            return []
        self.closer = step.optimizer
        return self._steps_of_new(step.optimizer)

    def may_end_step(self, optimizer: Hashable) -> bool:
        """Return whether this optimizer, though it is not the closer, may turn out to be."""
        return self.closer is None or optimizer in self._new_optimizers

    def last_steps(self) -> list[OptimizerStep]:
        """Return the pending steps that end a step of the loop because the program ends."""
        if self._trained and self.closer is None:
            return self.pending[-1:]
        return self._steps_of_new()

    def _steps_of_new(self, optimizer: Hashable = None) -> list[OptimizerStep]:
        """Return the pending steps of new optimizers and of ``optimizer``."""
        closing = {*self._new_optimizers, optimizer}
        return [step for step in self.pending if step.optimizer in closing]
