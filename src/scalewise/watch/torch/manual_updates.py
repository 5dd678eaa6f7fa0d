"""See the steps of a loop that updates its weights itself, without an optimizer of PyTorch.

Nothing tells of such an update. But the weights are another after it: so one of them is
remembered after the first backward and looked at whenever something of a next step begins, until
it has changed. From then on a step is as many backwards as it took until that first change, and
it ends where a batch is fetched or a model is called after them. Weights that nobody changes are
not trained: the gradients were wanted for something else.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

import torch

TRIES = 64
"""Backwards after which weights that have not changed are taken to be left alone."""
LOOKED_AT = 1000
"""Operations of a loss among which a weight is looked for."""


class ByHand:
    """Tells where the steps end; in place of the optimizer that such a loop has not."""

    def __init__(self, stepped: Callable[["ByHand"], None], over: Callable[[], None]) -> None:
        self._stepped, self._over = stepped, over
        self.defaults: dict[str, Any] = {}
        self.param_groups: list[dict[str, Any]] = [{}]
        self._backwards = 0
        """Since the last step."""
        self._each = 0
        """Backwards of a step, once known."""
        self._at_once = False
        """Whether nothing is seen between two backwards: then a step ends with its last one."""
        self._weight: torch.Tensor | None = None
        self._was: torch.Tensor | None = None

    def begins(self, backward: bool) -> None:
        """Something begins that may be the next step's: a fetch, the call of a model, a save."""
        if not self._backwards:
            return
        if not self._each:
            if not self._changed():
                if self._backwards >= TRIES:
                    self._over()
                return
            self._each, self._at_once = self._backwards, backward
            self._weight = self._was = None
        elif backward:
            return
        if self._backwards >= self._each:
            self._step()

    def backwarded(self, loss: Any) -> None:
        """Gradients are there."""
        self._backwards += 1
        if not self._each and self._weight is None:
            self._remember(loss)
        elif self._each and self._at_once and self._backwards >= self._each:
            self._step()

    def _step(self) -> None:
        self._backwards = 0
        self._stepped(self)

    def _remember(self, loss: Any) -> None:
        weight = a_weight(loss)
        if type(weight) not in (torch.Tensor, torch.nn.Parameter):
            return self._over()  # Such as one that is sharded: to compare it is to communicate.
        self._weight, self._was = weight, weight.detach().clone()
        return None

    def _changed(self) -> bool:
        if self._weight is None or self._was is None:
            return False
        return not torch.equal(self._weight.detach(), self._was)


def a_weight(loss: Any) -> Any:
    """Return the leaf nearest to a loss that gets a gradient, if there is one.

    >>> w = torch.ones(2, requires_grad=True)
    >>> a_weight((w * torch.zeros(2)).sum()) is w
    True
    """
    first = loss[0] if isinstance(loss, (list, tuple)) and loss else loss
    ahead = deque([getattr(first, "grad_fn", None)])
    for _ in range(LOOKED_AT):
        if not ahead:
            return None
        operation = ahead.popleft()
        if operation is None:
            continue
        if hasattr(operation, "variable"):
            return operation.variable
        ahead.extend(each for each, _ in operation.next_functions)
    return None
