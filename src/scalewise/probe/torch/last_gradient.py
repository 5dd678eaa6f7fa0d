"""Detect the last gradient of a backward: after it a DDP rank only waits for the others."""

import functools
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.graph import get_gradient_edge

MAX_MISSES = 8
"""After this many backwards without the expected last gradient, it is determined again."""


class LastGradient:
    """Calls ``callback`` when the last gradient of a DDP model is computed.

    In the first steps every gradient has a hook; then only the gradient that came last has one.
    With a single rank, none has: nothing is waited for.
    """

    def __init__(self, model: Any, callback: Callable[..., None]) -> None:
        self.model = weakref.ref(model)
        self.unused: set[str] = set()
        """Names of parameters that got no gradient."""
        self.ranks = model.process_group.size()
        self._callback = callback
        self._parameters = [(n, p) for n, p in model.module.named_parameters() if p.requires_grad]
        self._hooks: list[Any] = []
        """Handles of the hooks, with the graph nodes that must be kept alive for them."""
        self._order: dict[int, None] = {}
        """Parameter indices of this backward's gradients, in the order of arrival."""
        self._misses = 0
        self._last_indices: list[int] = []
        """The parameter index of each backward's last gradient, since ``_hook_every_gradient``."""
        self._hook_every_gradient()

    def remove_hooks(self) -> None:
        for _, handle in self._hooks:
            handle.remove()
        self._hooks = []

    def miss(self) -> None:
        """Count a backward without the expected last gradient; after several, look for it again."""
        self._misses += 1
        if self._misses >= MAX_MISSES:
            self._hook_every_gradient()

    def _hook_every_gradient(self) -> None:
        self.remove_hooks()
        self._order, self._last_indices, self._misses = {}, [], 0
        for index, (_, parameter) in enumerate(self._parameters):
            self._add_hook(parameter, functools.partial(self._on_gradient, index))

    def _add_hook(self, parameter: torch.Tensor, hook: Callable[..., None]) -> None:
        # DDP registered its hook on the same node first: when ours is called,
        # the last bucket is already being reduced.
        node = get_gradient_edge(parameter).node
        self._hooks.append((node, node.register_hook(hook)))

    def _on_gradient(self, index: int, *gradients: Any) -> None:
        """Note that a gradient arrived; after two complete backwards, hook only the last one."""
        if index in self._order:  # The next backward has begun.
            self._last_indices.append(next(reversed(self._order)))
            missing = set(range(len(self._parameters))) - set(self._order)
            self.unused |= {self._parameters[unused_index][0] for unused_index in missing}
            self._order.clear()
            if len(self._last_indices) >= 2:
                self.remove_hooks()
                if self.ranks > 1:
                    self._add_hook(self._parameters[self._last_indices[-1]][1], self._callback)
        self._order[index] = None
