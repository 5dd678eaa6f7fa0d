"""Add ``sync`` laps to a step: the times in which a rank waits for other ranks in any phase.

A rank waits in ``Work.wait``, in ``wait_tensor`` (functional collectives, DTensor), or in
``Stream.wait_event`` where a strategy communicates on another stream of an accelerator.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from scalewise.probe import Laps, Unwatched
from scalewise.probe.torch.last_gradient import LastGradient
from scalewise.spec import RunSpec

Args = tuple[Any, ...]
Patch = tuple[Any, str, Any, Any]
"""Module or class, name of its attribute, original value, replacement."""
NEXT_PHASE = {"forward": "backward", "backward": "optimizer", "sync": "optimizer"}
"""The phase that follows a lap. After others, ``optimizer`` is assumed: in ``input`` none waits."""


def wrap_wait(begin: Callable[[Args], None], end: Callable[[], None]) -> list[Patch]:
    """Return a patch with which ``Work.wait`` calls ``begin(args)`` first and ``end()`` last."""
    try:
        from torch._C._distributed_c10d import Work

        return [(Work, "wait", Work.wait, _wrap(Work.wait, begin, end))]
    except (ImportError, AttributeError):
        return []  # This version of PyTorch has another interface.


def wrap_functional(begin: Callable[[Args], None], end: Callable[[], None]) -> list[Patch]:
    """Return such a patch of ``wait_tensor``, for functional collectives, which DTensor uses."""
    try:
        from torch.distributed import _functional_collectives as owner

        return [(owner, "wait_tensor", owner.wait_tensor, _wrap(owner.wait_tensor, begin, end))]
    except (ImportError, AttributeError):
        return []


def _wrap(
    original: Callable[..., Any], begin: Callable[[Args], None], end: Callable[[], None]
) -> Callable[..., Any]:
    @functools.wraps(original)
    def wait(*args: Any, **kwargs: Any) -> Any:
        begin(args)
        try:
            return original(*args, **kwargs)
        finally:
            end()

    return wait


_active: "SyncTimer | None" = None
"""The timer of the current step."""


@functools.cache
def _patch_once(device_module: Any) -> None:
    """Patch every wait of this process to report to the active timer.

    Done once, not in every step: a change of a class invalidates Python's inline caches for it.
    """

    def begin(args: Args) -> None:
        if _active is not None:
            _active.begin()

    def end() -> None:
        if _active is not None:
            _active.end()

    for owner, name, _, replacement in wrap_wait(begin, end) + wrap_functional(begin, end):
        setattr(owner, name, replacement)
    if device_module:
        original = device_module.Stream.wait_event
        timed = _wrap(original, begin, end)

        @functools.wraps(original)
        def wait_event(stream: Any, event: Any) -> None:
            is_compute = _active is not None and stream == _active.stream
            (timed if is_compute else original)(stream, event)

        device_module.Stream.wait_event = wait_event


class SyncTimer:
    """Passes the laps of a step on to the probe and adds ``sync`` laps; entered for each step."""

    def __init__(self, spec: RunSpec, device: torch.device) -> None:
        first_phase = "pipeline" if spec.degrees.pipeline > 1 else "forward"
        self._next_phase = {**NEXT_PHASE, "input": first_phase}
        self._probe: Laps = Unwatched()
        self._phase = first_phase
        self._open_waits = 0
        """The number of waits that have begun and not ended: a wait may call another wait."""
        self._on_compute_stream = False
        self._device_module: Any = None if device.type == "cpu" else getattr(torch, device.type)
        self.stream: Any = None
        """The accelerator's compute stream. Waits on other streams do not stop computation."""
        # DDP waits inside C++, which ``DdpSyncTimer`` and ``BackwardSync`` time. Compiled tensor-
        # parallel layers do not call the patches: a time without their waits would mislead.
        is_plain_ddp = spec.traits.only_ddp and spec.degrees.degree == 1
        is_compiled_tensor = bool(spec.compile) and spec.degrees.tensor > 1
        self._enabled = spec.topology.world > 1 and not (is_plain_ddp or is_compiled_tensor)
        if self._enabled:
            _patch_once(self._device_module)

    def passing_to(self, probe: Laps) -> "SyncTimer":
        """Return this timer, which then passes laps on to ``probe``."""
        self._probe = probe
        return self

    def __enter__(self) -> "SyncTimer":
        global _active
        if self._enabled:
            self.stream = self._device_module and self._device_module.current_stream()
            _active = self
        return self

    def __exit__(self, *exception: object) -> None:
        global _active
        _active = None

    def lap(self, phase: str) -> None:
        self._probe.lap(phase)
        self._phase = self._next_phase.get(phase, "optimizer")

    def begin(self) -> None:
        """Called when a wait begins; only waits of the compute stream are counted."""
        self._open_waits += 1
        if self._open_waits == 1:
            self._on_compute_stream = (
                not self._device_module or self._device_module.current_stream() == self.stream
            )
            if self._on_compute_stream:
                self._probe.lap(self._phase)

    def end(self) -> None:
        """Called when a wait ends."""
        self._open_waits -= 1
        if not self._open_waits and self._on_compute_stream:
            self._probe.lap("sync")


class DdpSyncTimer:
    """Times the wait at the end of a backward, in which DDP's reducer finishes in C++."""

    def __init__(self, models: Sequence[nn.Module]) -> None:
        self.laps: Laps = Unwatched()
        ddp_models = [model for model in models if isinstance(model, DistributedDataParallel)]
        self._last_gradients = [LastGradient(model, self._on_last_gradient) for model in ddp_models]

    def _on_last_gradient(self, *gradients: Any) -> None:
        if isinstance(self.laps, SyncTimer):
            self.laps.begin()
            # DDP queued its own callback first, so this one runs after DDP's reduction.
            engine: Any = torch.autograd.Variable._execution_engine
            engine.queue_callback(self.laps.end)
