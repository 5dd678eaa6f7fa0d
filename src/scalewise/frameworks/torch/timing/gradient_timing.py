"""When the gradients of a backward come, watched in a few early steps.

A gradient that comes early can be exchanged behind the rest of the backward. So
these times, taken on a single device, tell what a larger machine can hide.
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
"""The indices of the steps that are watched: after the one whose traffic is counted."""


class GradientTimer:
    """Takes the laps of the steps that are watched, and notes each gradient between them."""

    def __init__(self, spec: RunSpec, model: nn.Module, device: torch.device) -> None:
        self._clock: Clock = HostClock() if device.type == "cpu" else EventClock(device)
        self._parameters = [each for each in model.parameters() if each.requires_grad]
        # What is split comes in other ways, and in pieces; what an engine shares out is empty.
        self._wanted = spec.degrees.degree == 1 and all(map(Tensor.numel, self._parameters))
        self._kept: list[Any] = []
        """Handles of the hooks, and the nodes of the graph that hold them."""
        self._step = -1
        self._laps: Laps = Unwatched()
        self._begin: Any = None
        self._came: dict[int, Any] = {}
        self._rows: list[tuple[Any, dict[int, Any], Any]] = []
        """Of each backward: its begin, when each gradient came, its end."""

    def over(self, laps: Laps) -> Laps:
        """Return who takes the laps of the step that begins: ``laps``, unless it is watched."""
        self._step += 1
        if not self._wanted or not FIRST_STEP <= self._step <= LAST_STEP + 1:
            return laps
        if self._step == FIRST_STEP:
            self._watch()
        if self._step > LAST_STEP:
            self._leave()
            return laps
        self._laps = laps
        return self

    def lap(self, phase: str) -> None:
        """Pass a lap on; a backward lies between those of forward and of itself."""
        self._laps.lap(phase)
        if phase == "forward":
            self._begin, self._came = self._clock.mark(), {}
        elif phase == "backward" and self._begin is not None:
            self._rows.append((self._begin, self._came, self._clock.mark()))
            self._begin = None

    def _watch(self) -> None:
        """Watch every gradient; where this version of PyTorch cannot, none."""
        try:
            for place, parameter in enumerate(self._parameters):
                node = get_gradient_edge(parameter).node
                self._kept.append((node, node.register_hook(partial(self._note, place))))
        except Exception:
            self._leave()

    def _note(self, place: int, *gradients: Any) -> None:
        self._came[place] = self._clock.mark()

    def _leave(self) -> None:
        for _, handle in self._kept:
            handle.remove()
        self._kept = []

    def found(self) -> list[tuple[int, float]] | None:
        """Return the bytes of each gradient and after which share of the backward it came.

        In the order in which they came; nothing where nobody watched, or a device lost its marks.
        """
        try:
            shares = [self._shares(*row) for row in self._rows]
        except RuntimeError:
            return None
        always = [place for place in (shares or [{}])[0] if all(place in row for row in shares)]
        order = sorted((median(row[place] for row in shares), place) for place in always)
        return [(self._parameters[place].nbytes, round(share, 4)) for share, place in order] or None

    def _shares(self, begin: Any, came: dict[int, Any], end: Any) -> dict[int, float]:
        marks = [*came.values(), end]
        *seconds, whole = self._clock.between([begin] * len(marks), marks)
        # The last one may come a moment after the lap that it brings about.
        return {place: min(1.0, each / whole) for place, each in zip(came, seconds) if whole > 0}
