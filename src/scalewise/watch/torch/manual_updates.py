"""Detect the steps of a loop that updates its weights itself, without a PyTorch optimizer.

One weight is copied after the first backward and compared at each activity until it changes. The
number of backwards before that change is taken for the number in every step, until another model is
trained. A step ends at the first fetch or forward after these backwards. If the weight never
changes, nothing is trained.

In a program with optimizers, this search begins when there are more backwards without an
optimizer's step than before, and it needs two changes: an optimizer's loop may also change weights.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

import torch

MAX_BACKWARDS = 64
"""If the weight is unchanged after so many backwards, the loop is assumed not to train."""
MAX_OPERATIONS = 1000
"""How many operations of a loss's graph are searched for a weight."""


class ManualUpdates:
    """Detects where steps end; stands in for the optimizer that such a loop lacks."""

    def __init__(
        self,
        on_step: Callable[["ManualUpdates"], None],
        on_give_up: Callable[[], None],
        on_begin: Callable[[int], None],
    ) -> None:
        self._on_step, self._on_give_up, self._on_begin = on_step, on_give_up, on_begin
        # ``Facts`` reads these two from an optimizer.
        self.defaults: dict[str, Any] = {}
        self.param_groups: list[dict[str, Any]] = [{}]
        self.has_begun = True
        """Whether each step is recorded; if not, earlier steps may have been missed."""
        self._backwards = 0
        """Backwards since the last step."""
        self._backwards_per_step = 0
        """0 while unknown."""
        self._ends_with_backward = False
        """Whether the next step begins with a backward, so that the last backward ends a step."""
        self._weight: torch.Tensor | None = None
        self._copy: torch.Tensor | None = None
        self._is_first_change = True
        """Whether the weight has not changed yet."""

    def search(self, *, has_optimizers: bool) -> None:
        """Begin to search: count backwards from now on, and compare another weight."""
        self._backwards = self._backwards_per_step = 0
        self._ends_with_backward = False
        self._weight = self._copy = None
        self.has_begun, self._is_first_change = not has_optimizers, True

    def before_activity(self, is_backward: bool) -> None:
        """End the step if it is complete, before a fetch, a model's call, a save or a backward."""
        if not self._backwards:
            return
        if not self._backwards_per_step:
            weight, copy = self._weight, self._copy
            if weight is None or copy is None or torch.equal(weight.detach(), copy):
                if self._backwards >= MAX_BACKWARDS:
                    self._on_give_up()
                return
            if not self.has_begun and self._is_first_change:
                self._backwards, self._is_first_change = 0, False
                self._copy = weight.detach().clone()
                return
            self._backwards_per_step, self._ends_with_backward = self._backwards, is_backward
            self._copy = None
            if not self.has_begun:
                self.has_begun = True
                self._on_begin(self._backwards)
        elif is_backward:
            return
        if self._backwards >= self._backwards_per_step:
            self._step()

    def before_new_model(self) -> None:
        """Before the first call of a model: another training may begin, with other steps."""
        if self._backwards_per_step:
            self.search(has_optimizers=not self.has_begun)

    def before_backward_alone(self, loss: Any) -> None:
        """Before a backward without a call of a known model: another training may have begun."""
        if self._backwards_per_step and find_weight(loss) is not self._weight:
            if self._backwards >= self._backwards_per_step:
                self._step()
            self.before_new_model()

    def after_backward(self, loss: Any) -> None:
        """Count a backward; at the first backward, choose the weight to compare."""
        self._backwards += 1
        if not self._backwards_per_step and self._weight is None:
            weight = find_weight(loss)
            if type(weight) not in (torch.Tensor, torch.nn.Parameter):
                self._on_give_up()  # No weight, or a sharded one: comparing it would communicate.
                return
            self._weight, self._copy = weight, weight.detach().clone()
        elif self._ends_with_backward and self._backwards >= self._backwards_per_step:
            self._step()

    def _step(self) -> None:
        self._backwards = 0
        self._on_step(self)


def find_weight(loss: Any) -> Any:
    """Return the weight that is nearest to the loss in the autograd graph, or None.

    >>> w = torch.ones(2, requires_grad=True)
    >>> find_weight((w * torch.zeros(2)).sum()) is w
    True
    """
    first = loss[0] if isinstance(loss, (list, tuple)) and loss else loss
    queue = deque([getattr(first, "grad_fn", None)])
    for _ in range(MAX_OPERATIONS):
        if not queue:
            return None
        operation = queue.popleft()
        if operation is None:
            continue
        if hasattr(operation, "variable"):
            return operation.variable
        queue.extend(function for function, _ in operation.next_functions)
    return None
