"""Where a rank only waits for others, in the midst of a phase: laps of their own.

A collective is waited for in one of three ways. Most have a ``Work``; tensors
that are spread over devices have ``wait_tensor``; and where a strategy exchanges
beside the computation of an accelerator, its queue of work waits for an event.
"""

import functools
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from scalewise.frameworks.torch.gradients import LastGradient
from scalewise.probe import Laps, Unwatched
from scalewise.spec import RunSpec

Patch = tuple[Any, str, Any, Any]
"""An owner, the name of something it has, the original, and what takes its place."""
NEXT = {"forward": "backward", "backward": "optimizer", "sync": "optimizer"}
"""What follows a phase, where that is not ``input``: there nobody waits."""


def wrap_wait(begin: Callable[[], None], end: Callable[[], None]) -> list[Patch]:
    """Return what has every wait for a collective told; nothing where that is impossible."""
    try:
        from torch._C._distributed_c10d import Work

        return [(Work, "wait", Work.wait, _around(Work.wait, begin, end))]
    except (ImportError, AttributeError):
        return []


def wrap_functional(begin: Callable[[], None], end: Callable[[], None]) -> list[Patch]:
    """Return the same for the collectives of tensors that are spread over devices."""
    try:
        from torch.distributed import _functional_collectives as owner

        return [(owner, "wait_tensor", owner.wait_tensor, _around(owner.wait_tensor, begin, end))]
    except (ImportError, AttributeError):
        return []


def _around(
    original: Callable[..., Any], begin: Callable[[], None], end: Callable[[], None]
) -> Callable[..., Any]:
    @functools.wraps(original)
    def wait(*words: Any, **named: Any) -> Any:
        begin()
        try:
            return original(*words, **named)
        finally:
            end()

    return wait


class Waits:
    """Takes the laps of a step, and adds those in which it waits: entered for one step."""

    def __init__(self, spec: RunSpec, device: torch.device) -> None:
        first = "pipeline" if spec.degrees.pipeline > 1 else "forward"
        self._next = {**NEXT, "input": first, first: NEXT.get(first, "optimizer")}
        self._probe: Laps = Unwatched()
        self._phase = first
        self._waiting = 0
        self._told = False
        self._handle: Any = None if device.type == "cpu" else getattr(torch, device.type)
        self._queue: Any = None
        """The accelerator's queue of work that computes; others only exchange."""
        self._patches: list[Patch] = []
        if spec.topology.world == 1 or (spec.compile and spec.degrees.tensor > 1):
            return  # Compiled layers wait unseen: a part of the waiting would pass for the whole.
        self._patches += wrap_wait(self.begin, self.end)
        self._patches += wrap_functional(self.begin, self.end)
        if self._handle:
            self._patches.append(self._wrap_event(self._handle.Stream))

    def over(self, probe: Laps) -> "Waits":
        """Pass what is told on to ``probe``."""
        self._probe = probe
        return self

    def __enter__(self) -> "Waits":
        self._queue = self._handle and self._handle.current_stream()
        for owner, name, _, watched in self._patches:
            setattr(owner, name, watched)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for owner, name, original, _ in self._patches:
            setattr(owner, name, original)

    def lap(self, phase: str) -> None:
        """Say that the time since the last mark went to ``phase``."""
        self._probe.lap(phase)
        self._phase = self._next.get(phase, "optimizer")

    def begin(self) -> None:
        """From here on this rank waits; what other queues of an accelerator wait for is no time."""
        self._waiting += 1
        if self._waiting == 1:
            self._told = not self._handle or self._handle.current_stream() == self._queue
            if self._told:
                self._probe.lap(self._phase)

    def end(self) -> None:
        """It has waited."""
        self._waiting -= 1
        if not self._waiting and self._told:
            self._probe.lap("sync")

    def _wrap_event(self, kind: Any) -> Patch:
        original = kind.wait_event
        told = _around(original, self.begin, self.end)

        @functools.wraps(original)
        def wait_event(stream: Any, event: Any) -> None:
            (told if stream == self._queue else original)(stream, event)

        return kind, "wait_event", original, wait_event


class Reduced:
    """Tells the wait at the end of a backward in which DDP, unseen, finishes its exchange."""

    def __init__(self, models: Sequence[nn.Module]) -> None:
        self.tell: Laps = Unwatched()
        wrapped = [each for each in models if isinstance(each, DistributedDataParallel)]
        self._last = [LastGradient(each, self._begin) for each in wrapped]

    def _begin(self, *gradients: Any) -> None:
        if isinstance(self.tell, Waits):
            self.tell.begin()
            # DDP has asked for its own call at the end before this one.
            engine: Any = torch.autograd.Variable._execution_engine
            engine.queue_callback(self.tell.end)
