"""The hooks that run in every step, with as few Python operations as possible.

The training evicts the hooks' data from the CPU's caches, so each object that a hook reads costs a
microsecond. So the hooks share local variables, which ``refresh`` copies from our objects whenever
an object changes, and ``make_hot_hooks`` is one long function with branches instead of helpers.
"""

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock, get_ident
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, is_grad_enabled

from scalewise.probe.watcher import Watcher
from scalewise.watch.torch.event_buffer import EventBuffer
from scalewise.watch.torch.forward_uses import MAX_FORWARDS, ForwardUses
from scalewise.watch.torch.patches import Args, Kwargs
from scalewise.watch.torch.private_api import LOADER, is_tracing, next_sequence_number

if TYPE_CHECKING:
    from scalewise.watch.torch.hooks import Hooks

INSPECTED_STEPS = 10
"""After so many steps a loader's batch is not inspected, if the model's input shows its size."""


@dataclass(frozen=True, slots=True)
class HotHooks:
    """The hooks, and the function that updates their variables."""

    around_forward: Callable[..., Callable[..., Any]]
    around_inner: Callable[[Callable[..., Any]], Callable[..., Any]]
    around_compiled: Callable[[Callable[..., Any]], Callable[..., Any]]
    around_backward: Callable[[Callable[..., Any]], Callable[..., Any]]
    around_fetch: Callable[[Callable[[Any], Any]], Callable[[Any], Any]]
    last_gradient: Callable[..., None]
    around_zero_grad: Callable[[Callable[..., Any]], Callable[..., Any]]
    note_forward: Callable[[int], None]
    differentiated: Callable[[Any, Any], None]
    step_begins: Callable[..., None]
    step_ends: Callable[..., None]
    refresh: Callable[[], None]
    set_syncing: Callable[[bool], None]
    is_fetching: Callable[[], bool]
    """Whether this thread waits for a loader; what the loader calls then is input."""
    has_backward: Callable[[], bool]
    """Whether a backward has begun since the last step."""


def make_hot_hooks(watcher: Watcher, buffer: EventBuffer, slow: "Hooks") -> HotHooks:
    """Return the hooks as closures over shared local variables; rare cases are left to ``slow``."""
    compiling = torch.compiler.is_compiling
    record: Callable[[tuple[Any, float]], None] | None = None
    """Takes an event and its time; None while the watcher is disabled."""
    now, observer = buffer.now, buffer.observer
    count_backward, count_fetch = slow.ledgers.count_backward, slow.ledgers.count_fetch
    count_exhausted = slow.ledgers.count_exhausted
    may_compile = inspects_batches = replicated = input_has_batch = False
    manual_updates = trains_in_eval = False
    settled_model_id = 0
    fetching_thread = 0  # The thread that waits for a loader; 0 if none does.
    training_threads = slow.training_threads
    reading_threads: set[int] = set()  # Other threads that wait for a loader.
    depth = 0
    """How many optimizer steps are nested at the moment."""
    step_frames: list[FrameType] = []
    """The frames in which these steps run, outermost first."""
    has_backward = False
    """Whether a backward has begun since the last step."""
    backwards = 0
    """Backwards since the last step of an optimizer."""
    most_backwards = max_backwards = 0
    """The most in any step; and the number from which on weights may be updated by hand."""
    last_optimizer = 0  # The id of the optimizer that stepped last.
    stepped_optimizers, updates = slow.stepped_optimizers, slow.manual_updates
    uses = ForwardUses()
    recent_forwards, unused_forwards = uses.forwards, uses.unused
    gradient_nodes = uses.gradient_nodes
    fetches = 0
    """Batches that loaders have given."""
    exhausted_at = 0
    """``fetches`` when a loader last had no more batches."""
    cleared_at = -1
    """``fetches`` at the last backward, if its gradients were set to zero without a step since."""
    fetches_at_backward = 0
    forwards = 0
    """How many recorded calls of models are running, one inside the other."""
    syncing = False
    """Whether the DDP model that was called last reduces its gradients in the next backward."""
    steps_left = 0  # How many more steps may be buffered.
    flush_at = 0.0
    processing = Lock()

    def refresh() -> None:
        nonlocal record, now, may_compile, inspects_batches, replicated, input_has_batch
        nonlocal manual_updates, trains_in_eval, settled_model_id, max_backwards
        record, now = buffer.append if watcher.enabled else None, buffer.now
        may_compile, manual_updates = slow.may_compile, slow.searches_updates
        max_backwards = max(slow.max_backwards, most_backwards)
        settled_model_id, replicated = slow.settled_model_id, slow.replicated
        input_has_batch = slow.input_has_batch
        trains_in_eval, input_differs = observer.trains_in_eval, observer.counts.input_differs
        inspects_batches = watcher.steps <= INSPECTED_STEPS or input_differs

    def around_forward(
        original: Callable[..., Any], model_ids: set[int] | None = None
    ) -> Callable[..., Any]:
        """Return a class's ``__call__`` that records an event before and after the original.

        With gradients, only calls of ``model_ids`` are recorded: other instances of the class may
        be parts of a model. Without gradients all are: validation may use an untrained copy.
        """

        @functools.wraps(original)
        def watched(*args: Any, **kwargs: Any) -> Any:
            nonlocal forwards, syncing
            # A compiler that traces this function follows only this first branch.
            if (may_compile and compiling()) or record is None or is_tracing():
                return original(*args, **kwargs)
            if fetching_thread and fetching_thread == get_ident():  # It is called by a dataset.
                return original(*args, **kwargs)
            trains = not forwards and is_grad_enabled()
            # The usual case: the settled model is called to train, with a plain tensor as input.
            if (
                trains
                and id(args[0]) == settled_model_id
                and input_has_batch
                and len(args) > 1
                and type(args[1]) is Tensor
                and args[1].dim() > 1  # A nested tensor has no ``shape``.
                and (trains_in_eval or args[0].training)
            ):
                syncing = replicated and args[0].require_backward_grad_sync
                record((("forward", args[1].size(0), True, syncing, settled_model_id), now()))
            elif model_ids is None or id(args[0]) in model_ids or not is_grad_enabled():
                recorded = False
                try:
                    recorded = slow.forward(args, kwargs)
                except Exception as problem:
                    slow.disable(problem)
                refresh()
                if not recorded:
                    return original(*args, **kwargs)
            else:
                return original(*args, **kwargs)
            first_node = next_sequence_number() if trains else 0
            forwards += 1
            ended = "failed" if trains else "forwarded"
            try:
                result = original(*args, **kwargs)
                ended = "forwarded"
            finally:
                forwards -= 1
                if record is not None:
                    record(((ended,), now()))
            if trains:
                note_forward(first_node)
            return result

        return watched

    def around_inner(original: Callable[..., Any]) -> Callable[..., Any]:
        """Return the ``__call__`` of a class inside models, recorded if no model is running and
        there are no gradients: a method of the model calls it, to sample for example.
        """
        outermost = around_forward(original)

        @functools.wraps(original)
        def watched(*args: Any, **kwargs: Any) -> Any:
            if (may_compile and compiling()) or forwards or is_grad_enabled():
                return original(*args, **kwargs)
            return outermost(*args, **kwargs)

        return watched

    def around_compiled(original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a compiled model's ``__call__``, recorded unless another model calls it.

        In ``DDP(compile(model))`` the call of DDP is recorded.
        """
        outermost = around_forward(original)

        @functools.wraps(original)
        def watched(*args: Any, **kwargs: Any) -> Any:
            if (may_compile and compiling()) or forwards:
                return original(*args, **kwargs)
            return outermost(*args, **kwargs)

        return watched

    def around_backward(original: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``backward`` with an event before and after it."""

        @functools.wraps(original)
        def watched(*args: Any, **kwargs: Any) -> Any:
            nonlocal backwards, cleared_at, fetches_at_backward, has_backward
            if (may_compile and compiling()) or record is None:
                return original(*args, **kwargs)
            if manual_updates:
                slow.before_activity(backward=True, loss=args[0] if args else None)
            count_backward(args, depth > 0)
            has_backward = True
            if len(unused_forwards) == 1:
                unused_forwards.pop()
            elif unused_forwards:
                slow.forwards_used(uses, args[0] if args else None)
            # The gradients of the last batch were cleared, and another one was fetched.
            is_skipped = 0 <= cleared_at < fetches
            record((("backward", True) if is_skipped else ("backward",), now()))
            cleared_at, fetches_at_backward = -1, fetches
            backwards += depth == 0  # Not those of a closure.
            # Decided now: the interpreter's own code is evicted from the caches meanwhile.
            may_update = manual_updates or backwards > max_backwards
            try:
                return original(*args, **kwargs)
            finally:
                if record is not None:
                    record((("end",), now()))
                    if may_update:
                        slow.after_backward(args[0] if args else None)

        return watched

    def around_fetch(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a loader iterator's ``__next__`` with an event before and after it."""

        @functools.wraps(original)
        def watched(iterator: Any) -> Any:
            nonlocal fetching_thread, fetches, exhausted_at
            if record is None:
                return original(iterator)
            thread = get_ident()
            if thread not in training_threads:  # Another thread reads ahead.
                reading_threads.add(thread)
                try:
                    batch = original(iterator)
                finally:
                    reading_threads.discard(thread)
                count_fetch(iterator)
                return batch
            if fetching_thread == thread:  # The dataset of a loader reads from another one.
                return original(iterator)
            if manual_updates:
                slow.before_activity()
            record((("fetch", getattr(iterator, LOADER, 0)), now()))
            fetching_thread = thread
            try:
                batch = original(iterator)
            except BaseException:
                exhausted_at = fetches
                if record is not None:
                    count_exhausted()
                    record((("exhausted",), now()))
                raise
            finally:
                fetching_thread = 0
            count_fetch(iterator)
            fetches += 1
            event: tuple[Any, ...] = ("fetched", None)
            if inspects_batches or not input_has_batch:
                event = slow.inspect_batch(batch, iterator)
            if record is not None:
                record((event, now()))
            return batch

        return watched

    def last_gradient(*gradients: Any) -> None:
        """Record that from now on this backward only waits for other ranks."""
        if not (may_compile and compiling()) and record is not None and syncing:
            record((("split", "sync"), now()))

    def around_zero_grad(original: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``zero_grad`` that notes whether gradients were cleared that no step has used."""

        @functools.wraps(original)
        def watched(*args: Any, **kwargs: Any) -> Any:
            nonlocal cleared_at
            if (may_compile and compiling()) or record is None:
                return original(*args, **kwargs)
            if not slow.optimizer_seen:
                slow.before_zero_grad(args[0])
            if depth:
                forget_failed_steps(sys._getframe(1))
            if backwards and not depth and len(stepped_optimizers) == 1:
                cleared_at = fetches_at_backward
            return original(*args, **kwargs)

        return watched

    def set_syncing(value: bool) -> None:
        nonlocal syncing
        syncing = value

    def note_forward(first_node: int) -> None:
        """Note a forward with gradients that has ended; ``first_node`` was then the next node."""
        if len(recent_forwards) < MAX_FORWARDS:
            forward = (fetches, first_node, next_sequence_number())
            recent_forwards.append(forward)
            unused_forwards.append(forward)

    def differentiated(outputs: Any, gradients: Any) -> None:
        """Note a call of ``torch.autograd.grad``."""
        if recent_forwards:
            uses.differentiate(outputs, gradients)

    def forget_failed_steps(frame: FrameType | None) -> None:
        """Forget steps that have raised an exception: their frames do not run any more. PyTorch
        calls no hook at their end. ``frame`` is the newest one in which such a step may run.
        """
        nonlocal depth
        running: set[FrameType] = set()
        while frame is not None:
            running.add(frame)
            frame = frame.f_back
        while step_frames and step_frames[-1] not in running:
            step_frames.pop()
        if depth and not step_frames and record is not None:
            record((("end",), now()))
        depth = len(step_frames)

    def step_begins(
        optimizer: Any, args: Args, kwargs: Kwargs, frame: FrameType | None = None
    ) -> None:
        """Note that an optimizer's step begins, which runs in ``frame``, by default the caller."""
        nonlocal depth
        if (may_compile and compiling()) or record is None:
            return
        frame = frame or sys._getframe(1)
        if depth:
            forget_failed_steps(frame.f_back)
        step_frames.append(frame)
        depth += 1
        if depth == 1:
            record((("begin", "optimizer"), now()))
        # ``step`` has no argument but a closure; a GradScaler's ``step`` has the optimizer.
        values = (*args[1:], *kwargs.values())
        slow.before_step(nested=depth > 1 or any(value is not None for value in values))

    def step_ends(optimizer: Any, args: Args, kwargs: Kwargs) -> None:
        nonlocal depth, steps_left, flush_at, backwards, most_backwards, last_optimizer, cleared_at
        nonlocal has_backward
        if (may_compile and compiling()) or record is None:
            return
        if depth > 1:
            step_frames.pop()
            depth -= 1
            return
        step_frames.clear()
        depth, has_backward = 0, False
        if manual_updates and optimizer is not updates:
            slow.before_optimizer_step(optimizer)
        if backwards > most_backwards:
            most_backwards = backwards
        backwards, cleared_at = 0, -1
        moment = now()
        event: tuple[Any, ...] = ("stepped", id(optimizer))
        if unused_forwards and (discarded := uses.discarded(exhausted_at)):
            event = (*event, len(recent_forwards), discarded)
        recent_forwards.clear()
        if unused_forwards or gradient_nodes:
            uses.clear()
        record((event, moment))
        steps_left -= 1
        if id(optimizer) != last_optimizer:
            last_optimizer = id(optimizer)
            if last_optimizer not in stepped_optimizers:  # Its model may be unknown.
                stepped_optimizers.add(last_optimizer)
                steps_left = -1
        if steps_left >= 0 and moment < flush_at:
            return
        if not processing.acquire(blocking=False):  # Another thread that trains does it.
            return
        try:
            buffer.process()
            slow.after_steps(optimizer)
        except Exception as problem:
            slow.disable(problem)
        finally:
            processing.release()
        steps_left, flush_at = buffer.max_steps, buffer.flush_at
        refresh()

    def is_fetching() -> bool:
        return fetching_thread == get_ident() or get_ident() in reading_threads

    refresh()
    return HotHooks(
        around_forward, around_inner, around_compiled, around_backward, around_fetch, last_gradient,
        around_zero_grad, note_forward, differentiated, step_begins, step_ends, refresh,
        set_syncing, is_fetching, lambda: has_backward,
    )  # fmt: skip
