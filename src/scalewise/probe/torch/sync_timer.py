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

from scalewise.probe import Laps, Unwatched
from scalewise.probe.torch.last_gradient import LastGradient
from scalewise.spec import RunSpec

Words = tuple[Any, ...]
Patch = tuple[Any, str, Any, Any]
"""An owner, the name of something it has, the original, and what takes its place."""
NEXT = {"forward": "backward", "backward": "optimizer", "sync": "optimizer"}
"""What follows a phase, where that is not ``input``: there nobody waits."""


def wrap_wait(begin: Callable[[Words], None], end: Callable[[], None]) -> list[Patch]:
    """Return what has every wait for a collective told; nothing where that is impossible.

    ``begin`` gets what the wait was called with.
    """
    try:
        from torch._C._distributed_c10d import Work

        return [(Work, "wait", Work.wait, _around(Work.wait, begin, end))]
    except (ImportError, AttributeError):
        return []


def wrap_functional(begin: Callable[[Words], None], end: Callable[[], None]) -> list[Patch]:
    """Return the same for the collectives of tensors that are spread over devices."""
    try:
        from torch.distributed import _functional_collectives as owner

        return [(owner, "wait_tensor", owner.wait_tensor, _around(owner.wait_tensor, begin, end))]
    except (ImportError, AttributeError):
        return []


def _around(
    original: Callable[..., Any], begin: Callable[[Words], None], end: Callable[[], None]
) -> Callable[..., Any]:
    @functools.wraps(original)
    def wait(*words: Any, **named: Any) -> Any:
        begin(words)
        try:
            return original(*words, **named)
        finally:
            end()

    return wait


_now: "Waits | None" = None
"""Who takes the waits of the step that is being done."""
_wrapped = False


def _wrap_once(handle: Any) -> None:
    """Have every wait of this process told, to whoever takes it at the time.

    Once and for all: a class that is changed in every step forgets what Python has learned of it.
    """
    global _wrapped
    if _wrapped:
        return
    _wrapped = True
    patches = wrap_wait(_begin, _end) + wrap_functional(_begin, _end)
    if handle:
        patches.append(_wrap_event(handle.Stream))
    for owner, name, _, watched in patches:
        setattr(owner, name, watched)


def _begin(words: Words) -> None:
    if _now is not None:
        _now.begin()


def _end() -> None:
    if _now is not None:
        _now.end()


def _wrap_event(kind: Any) -> Patch:
    original = kind.wait_event
    told = _around(original, _begin, _end)

    @functools.wraps(original)
    def wait_event(stream: Any, event: Any) -> None:
        ours = _now is not None and stream == _now.queue
        (told if ours else original)(stream, event)

    return kind, "wait_event", original, wait_event


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
        self.queue: Any = None
        """The accelerator's queue of work that computes; others only exchange."""
        # DDP waits unseen, and ``Reduced`` tells of it. Compiled layers that are split wait unseen
        # too: a part of the waiting would pass for the whole.
        plain = spec.strategy == "ddp" and spec.degrees.degree == 1
        unseen = bool(spec.compile) and spec.degrees.tensor > 1
        self._wanted = spec.topology.world > 1 and not plain and not unseen
        if self._wanted:
            _wrap_once(self._handle)

    def over(self, probe: Laps) -> "Waits":
        """Pass what is told on to ``probe``."""
        self._probe = probe
        return self

    def __enter__(self) -> "Waits":
        global _now
        if self._wanted:
            self.queue = self._handle and self._handle.current_stream()
            _now = self
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        global _now
        _now = None

    def lap(self, phase: str) -> None:
        """Say that the time since the last mark went to ``phase``."""
        self._probe.lap(phase)
        self._phase = self._next.get(phase, "optimizer")

    def begin(self) -> None:
        """From here on this rank waits; what other queues of an accelerator wait for is no time."""
        self._waiting += 1
        if self._waiting == 1:
            self._told = not self._handle or self._handle.current_stream() == self.queue
            if self._told:
                self._probe.lap(self._phase)

    def end(self) -> None:
        """It has waited."""
        self._waiting -= 1
        if not self._waiting and self._told:
            self._probe.lap("sync")


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
