"""When the last gradient of a step is there: where computing ends and waiting begins."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.graph import get_gradient_edge

MISSED = 8
"""Backwards without the last gradient after which it is learned anew; another model's may be it."""


class LastGradient:
    """Tells when the last gradient of a DDP model is there: compute ends, waiting begins.

    In the first steps every gradient is watched, to learn which comes last;
    then only that one. If it stays away for long, it is learned anew.
    """

    def __init__(self, model: Any, tell: Callable[[], None]) -> None:
        self.model = model
        self.unused: set[str] = set()
        self._tell = tell
        self._named = [(n, p) for n, p in model.module.named_parameters() if p.requires_grad]
        self._handles: list[Any] = []
        self._nodes: list[Any] = []
        self._order: list[int] = []
        self._last: int | None = None
        self._missed = 0
        self._seen: list[int] = []
        self._watch_all()

    def remove(self) -> None:
        """Watch no gradient any more."""
        for handle in self._handles:
            handle.remove()
        self._handles, self._nodes = [], []

    def settle(self) -> None:
        """A backward has ended, and its last gradient was not told: learn from it."""
        if self._last is None and self._order:
            self._seen.append(self._order[-1])
            missing = set(range(len(self._named))) - set(self._order)
            self.unused |= {self._named[place][0] for place in missing}
            self._order = []
            if len(self._seen) >= 2:
                self._watch_one(self._seen[-1])
        elif self._last is not None:
            self._missed += 1
            if self._missed >= MISSED:
                self._watch_all()

    def _watch_all(self) -> None:
        self.remove()
        self._last, self._order, self._seen = None, [], []
        self._missed = 0
        for place, (_, parameter) in enumerate(self._named):
            self._watch(parameter, functools.partial(self._came, place))

    def _watch_one(self, place: int) -> None:
        self.remove()
        self._last = place
        self._watch(self._named[place][1], self._came_last)

    def _watch(self, parameter: torch.Tensor, hook: Callable[..., None]) -> None:
        # DDP's own hook sits on the same node and came first: when ours is called,
        # the last bundle is on its way.
        node = get_gradient_edge(parameter).node
        self._nodes.append(node)
        self._handles.append(node.register_hook(hook))

    def _came(self, place: int, *grads: Any) -> None:
        self._order.append(place)

    def _came_last(self, *grads: Any) -> None:
        self._missed = 0
        self._tell()
