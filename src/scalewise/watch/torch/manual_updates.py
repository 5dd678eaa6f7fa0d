"""Detect the steps of a loop that updates its weights itself, without a PyTorch optimizer.

One weight is copied after the first backward and compared at each activity until it changes. The
number of backwards before that change is taken for the number in every step. A step ends at the
first fetch or forward after these backwards. If the weight never changes, nothing is trained.
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
        self, on_step: Callable[["ManualUpdates"], None], on_give_up: Callable[[], None]
    ) -> None:
        self._on_step, self._on_give_up = on_step, on_give_up
        # ``Facts`` reads these two from an optimizer.
        self.defaults: dict[str, Any] = {}
        self.param_groups: list[dict[str, Any]] = [{}]
        self._backwards = 0
        """Backwards since the last step."""
        self._backwards_per_step = 0
        """0 while unknown."""
        self._ends_with_backward = False
        """Whether the next step begins with a backward, so that the last backward ends a step."""
        self._weight: torch.Tensor | None = None
        self._copy: torch.Tensor | None = None

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
            self._backwards_per_step, self._ends_with_backward = self._backwards, is_backward
            self._weight = self._copy = None
        elif is_backward:
            return
        if self._backwards >= self._backwards_per_step:
            self._step()

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
