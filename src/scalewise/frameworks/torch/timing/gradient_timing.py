"""Measure when each gradient is ready within the backward pass, in a few early steps.

So a run on one device shows how much communication could overlap with backward on several.
"""

from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge

from scalewise.probe import Clock, HostClock, Laps, Unwatched
from scalewise.probe.torch.device import EventClock
from scalewise.spec import RunSpec

FIRST_STEP, LAST_STEP = 4, 8
"""The indices of the timed steps, after the step whose collectives are counted."""


class GradientTimer:
    """Passes on the laps of timed steps, and takes a mark (timestamp) when a gradient is ready."""

    def __init__(self, spec: RunSpec, model: nn.Module, device: torch.device) -> None:
        self._clock: Clock = HostClock() if device.type == "cpu" else EventClock(device)
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        # Split models have only pieces of gradients; DeepSpeed's sharded parameters are empty.
        self._is_enabled = spec.degrees.degree == 1 and all(map(Tensor.numel, self._parameters))
        self._hooks: list[Any] = []
        """Handles of the hooks, with the graph nodes that must be kept alive for them."""
        self._step = -1
        self._laps: Laps = Unwatched()
        self._backward_begin: Any = None
        self._marks: dict[int, Any] = {}
        self._backwards: list[tuple[Any, dict[int, Any], Any]] = []
        """For each backward: marks of its begin, of gradients by parameter index, of its end."""

    def wrap(self, laps: Laps) -> Laps:
        """Return what the next step reports laps to: ``laps``, or in timed steps this timer."""
        self._step += 1
        if not self._is_enabled or not FIRST_STEP <= self._step <= LAST_STEP + 1:
            return laps
        if self._step == FIRST_STEP:
            self._add_hooks()
        if self._step > LAST_STEP:
            self._remove_hooks()
            return laps
        self._laps = laps
        return self

    def lap(self, phase: str) -> None:
        """Pass on a lap; the lap "forward" begins a backward, the lap "backward" ends it."""
        self._laps.lap(phase)
        if phase == "forward":
            self._backward_begin, self._marks = self._clock.mark(), {}
        elif phase == "backward" and self._backward_begin is not None:
            self._backwards.append((self._backward_begin, self._marks, self._clock.mark()))
            self._backward_begin = None

    def _add_hooks(self) -> None:
        """Hook every gradient, or none if this version of PyTorch does not support it."""
        try:
            for index, parameter in enumerate(self._parameters):
                node = get_gradient_edge(parameter).node
                self._hooks.append((node, node.register_hook(partial(self._mark_gradient, index))))
        except Exception:
            self._remove_hooks()

    def _mark_gradient(self, index: int, *gradients: Any) -> None:
        self._marks[index] = self._clock.mark()

    def _remove_hooks(self) -> None:
        for _, handle in self._hooks:
            handle.remove()
        self._hooks = []

    def arrivals(self) -> list[tuple[int, float]] | None:
        """Return (bytes, share of backward until it is ready) of each gradient, by that share."""
        rows: list[dict[int, float]] = []  # One per backward: the share for each parameter index.
        for begin, marks, end in self._backwards:
            ends = [*marks.values(), end]
            try:
                *seconds, total = self._clock.between([begin] * len(ends), ends)
            except RuntimeError:
                return None
            # The last gradient may be marked just after the lap that it triggers, hence ``min``.
            rows.append({i: min(1.0, s / total) for i, s in zip(marks, seconds) if total > 0})
        in_all = [index for index in (rows or [{}])[0] if all(index in row for row in rows)]
        shares = sorted((median(row[index] for row in rows), index) for index in in_all)
        return [(self._parameters[i].nbytes, round(share, 4)) for share, i in shares] or None
