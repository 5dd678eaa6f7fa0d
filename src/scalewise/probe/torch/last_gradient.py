"""When the last gradient of a step is there: where computing ends and waiting begins."""

import functools
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.graph import get_gradient_edge

MISSED = 8
"""Steps without the last gradient after which it is learned anew."""


class LastGradient:
    """Tells when the last gradient of a DDP model is there: compute ends, waiting begins.

    In the first steps every gradient is watched, to learn which comes last;
    then only that one. If it stays away for long, it is learned anew.
    """

    def __init__(self, model: Any, tell: Callable[..., None]) -> None:
        self.model = weakref.ref(model)
        self.unused: set[str] = set()
        self._tell = tell
        self._named = [(n, p) for n, p in model.module.named_parameters() if p.requires_grad]
        self._handles: list[Any] = []
        self._nodes: list[Any] = []
        self._order: dict[int, None] = {}
        """The gradients of this backward, in the order in which they came."""
        self._missed = 0
        self._seen: list[int] = []
        self._learn()

    def remove(self) -> None:
        """Watch no gradient any more."""
        for handle in self._handles:
            handle.remove()
        self._handles, self._nodes = [], []

    def miss(self) -> None:
        """A step has ended without its last gradient: when that is so for long, learn anew."""
        self._missed += 1
        if self._missed >= MISSED:
            self._learn()

    def _learn(self) -> None:
        self.remove()
        self._order, self._seen, self._missed = {}, [], 0
        for place, (_, parameter) in enumerate(self._named):
            self._watch(parameter, functools.partial(self._came, place))

    def _watch(self, parameter: torch.Tensor, hook: Callable[..., None]) -> None:
        # DDP's own hook sits on the same node and came first: when ours is called,
        # the last bundle is on its way.
        node = get_gradient_edge(parameter).node
        self._nodes.append(node)
        self._handles.append(node.register_hook(hook))

    def _came(self, place: int, *gradients: Any) -> None:
        if place in self._order:  # The next backward has begun.
            self._settle()
        self._order[place] = None

    def _settle(self) -> None:
        """Learn from a whole backward."""
        self._seen.append(next(reversed(self._order)))
        missing = set(range(len(self._named))) - set(self._order)
        self.unused |= {self._named[place][0] for place in missing}
        self._order.clear()
        if len(self._seen) >= 2:
            self.remove()
            self._watch(self._named[self._seen[-1]][1], self._tell)
