"""Count updates of weights that no optimizer makes: a weight is compared at each backward.

A *window* is the time between two steps of optimizers. Only in a window with more backwards than
usual is a weight compared, so a program that trains with optimizers is not slowed down.
"""

from typing import Any
from weakref import ref

import torch

from scalewise.watch.torch.manual_updates import find_weight

MAX_CHECKS = 64
"""In how many backwards of a window the weight is compared."""
COMPARED_ELEMENTS = 65_536
MIN_CHANGES = 2
"""A weight changes this often by hand; SAM changes it once before its optimizer's step."""
LONG_WINDOW = 4
"""A window that an optimizer's step ends has updates by hand if it has this many times as many
backwards as later windows. Otherwise the changes belong to the step: an inner loop, for example.
"""


class WeightChanges:
    """How often a weight changed between backwards."""

    def __init__(self) -> None:
        self._weight: Any = lambda: None
        self._copy: torch.Tensor | None = None
        self._checks = self._changes = 0
        self._windows: list[tuple[int, int]] = []
        """Long windows that an optimizer's step ended: backwards, and updates by hand."""
        self._usual: list[int] = []
        """The most backwards of a usual window after each of them."""

    def check(self, loss: Any) -> None:
        """Compare the weight before a backward; the first check of a window chooses it."""
        try:
            weight = self._weight()
            if weight is None:
                return self._choose(find_weight(loss))
            elements = _elements(weight)
            if self._copy is not None:
                is_equal = torch.equal(elements, self._copy)
                if is_equal and (other := find_weight(loss)) is not weight:
                    return self._choose(other)  # Another model is trained now.
                self._checks += 1
                if is_equal:
                    return None
                self._changes += 1
            self._copy = elements.clone()
        except Exception:
            self._copy = None
        return None

    def _choose(self, weight: Any) -> None:
        """Compare this weight from now on."""
        if type(weight) in (torch.Tensor, torch.nn.Parameter):
            self._weight, self._copy = ref(weight), _elements(weight).clone()
        # Otherwise it is None, or a sharded one: comparing it would communicate.

    def end_window(self, backwards: int, longest: int) -> None:
        """End a long window at an optimizer's step; ``longest`` is that of usual ones before."""
        self.end_usual(longest)
        updates = self._updates(backwards - 1)  # The last backward is the optimizer's.
        self._weight, self._copy, self._checks, self._changes = (lambda: None), None, 0, 0
        if updates:
            self._windows.append((backwards, updates))
            self._usual.append(0)

    def end_usual(self, longest: int) -> None:
        """Note the most backwards of the usual windows since the last long one."""
        if self._usual:
            self._usual[-1] = max(self._usual[-1], longest)

    def manual_updates(self, pending: int) -> int:
        """Return the updates by hand, with ``pending`` backwards since the last optimizer step."""
        total = self._updates(pending)
        for index, (backwards, updates) in enumerate(self._windows):
            if backwards > LONG_WINDOW * max(self._usual[index:]):
                total += updates
        return total

    def _updates(self, backwards: int) -> int:
        """Return the updates of a window, from those of its backwards that were checked."""
        if self._changes < MIN_CHANGES:
            return 0
        return round(backwards * self._changes / self._checks)


@torch.no_grad()
def _elements(weight: torch.Tensor) -> torch.Tensor:
    """Return the elements to compare, spread over the weight."""
    stride = weight.numel() // COMPARED_ELEMENTS + 1
    return weight.detach().reshape(-1)[::stride]
