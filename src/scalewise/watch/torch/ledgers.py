"""Count optimizer steps, weight updates and loaders' batches, apart from the observer.

The observer decides what events mean; ledgers only count, so that the two can disagree. When a rank
ends, both numbers are written; ``analysis.conservation`` compares them when the run is loaded.

A *round* is a sequence of optimizer steps in which no optimizer occurs twice: the two optimizers of
a GAN make one round. A *pass* is one iterator of a loader; it is for training if a backward
followed one of its batches before anything else was fetched.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from threading import get_ident
from typing import Any

import torch

from scalewise.probe.watcher import Watcher
from scalewise.watch.torch import private_api
from scalewise.watch.torch.discovery import on_delete
from scalewise.watch.torch.loader_passes import PASS, LoaderPasses, Pass
from scalewise.watch.torch.weight_changes import MAX_CHECKS, WeightChanges

MIN_SWITCHES = 8
"""Threads train at the same time if backwards change their thread this often."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What was counted until now."""

    optimizers: int
    """Optimizers that stepped."""
    calls: int
    """Their steps, except those without a gradient."""
    own_batches: int
    """Those of optimizers that still exist, if a loader gave a batch since the step before."""
    rounds: int
    turns: int
    """Rounds of several optimizers whose last one began the next round. Each may be two rounds: the
    last of one part of the program, and the first of the next part."""
    pending: int
    """Backwards since the last optimizer step."""
    calls_since_fetch: int
    """Optimizer steps since a loader last gave a batch."""
    threads: int
    """Threads that train at the same time."""


class Ledgers:
    """The counts of one rank. ``count_backward``, ``count_fetch``, ``count_exhausted`` and
    ``count_step`` are called in every step.
    """

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self.may_compile = False
        self.skipped_samples: Callable[[], int] = lambda: 0
        """How many samples the program fetched for training and threw away."""
        self.scaler_steps = 0
        """Calls of a GradScaler's ``step``; some of them skip the optimizer's."""
        self._passes = LoaderPasses()
        self._weights = WeightChanges()
        self._make_counters()

    def begin_pass(self, loader: Any, iterator: Any) -> None:
        """Begin to count what an iterator of a loader gives."""
        with suppress(AttributeError):  # Of None if it raised, or of a generator.
            setattr(iterator, PASS, self._passes.begin(loader))

    def note_batch(self, iterator: Any, samples: int | None, drawn: int | None) -> None:
        """Note the samples of an inspected batch, and how many the sampler drew for it."""
        if (this := getattr(iterator, PASS, None)) is not None:
            this.loader.note_batch(samples or 0, drawn)

    def close(self) -> dict[str, Any]:
        """Return the ledgers, as ``Ledgers`` of record/schema.py; empty without a step."""
        watcher, counts = self._watcher, self._read_counts()
        if not watcher.steps:
            return {}
        values: dict[str, Any] = {"time": watcher.time_ledger(), "threads": counts.threads}
        if not watcher.explicit:
            values["steps"] = self._step_ledger(counts)
            if not watcher.spec.samples_per_step:
                values["samples"] = {
                    "credited": watcher.samples,
                    "skipped": self.skipped_samples(),
                    **self._passes.totals(),
                    "steps_since_fetch": counts.calls_since_fetch,
                    "first": watcher.first_samples,
                    "later": watcher.most_later_samples,
                }
        return {"ledgers": values}

    def _step_ledger(self, counts: Counts) -> dict[str, Any]:
        # A compiled optimizer changes weights, and its step is not seen.
        manual = 0 if self.may_compile else self._weights.manual_updates(counts.pending)
        # Few turns are parts of a program that train in turn; many, a pattern within its steps.
        parts = counts.turns if counts.turns <= counts.optimizers else 0
        return {
            "recorded": self._watcher.steps,
            "updates": counts.rounds + parts + manual or None,
            "optimizers": counts.optimizers,
            "calls": counts.calls,
            "own_batches": counts.own_batches,
            "scaled": self.scaler_steps,
            "by_hand": manual,
        }

    def _make_counters(self) -> None:
        """Set the functions that count. They share local variables, which are faster to read than
        attributes (see hot_hooks.py).
        """
        compiling, weights, watcher = torch.compiler.is_compiling, self._weights, self._watcher
        backwards = backwards_at_step = longest = 0
        limit = 1  # If more backwards precede an optimizer's step, a weight is compared.
        optimizers = calls = rounds = turns = 0
        round_size = 0  # Optimizers that stepped in this round; 0 if the next step begins a round.
        # By optimizer id: the number of backwards before its last step, the round of that step, and
        # how many of its steps had batches of their own.
        states: dict[int, list[int]] = {}
        last_state: list[int] = []
        fetches = backwards_at_fetch = calls_at_fetch = fetches_at_step = 0
        current: Pass | None = None
        thread: int | None = None
        threads: set[int] = set()
        switches = 0

        def count_backward(args: tuple[Any, ...], in_step: bool) -> None:
            nonlocal backwards, backwards_at_step, thread, switches
            backwards += 1
            backwards_at_step += in_step  # A closure's; LBFGS changes weights between them.
            if get_ident() != thread and not private_api.in_backward():
                switches += thread is not None
                thread = get_ident()
                threads.add(thread)
            if limit < backwards - backwards_at_step <= limit + MAX_CHECKS:
                weights.check(args[0] if args else None)

        def count_fetch(iterator: Any) -> None:
            nonlocal current, fetches, backwards_at_fetch, calls_at_fetch
            if current is not None and backwards != backwards_at_fetch:
                current.trained = True
            this = getattr(iterator, PASS, None)
            if this is not current and current is not None:
                current.last = fetches
            fetches += 1
            backwards_at_fetch, calls_at_fetch, current = backwards, calls, this
            if this is not None:
                if not this.first:
                    this.first = fetches
                this.batches += 1

        def count_exhausted() -> None:
            nonlocal current, backwards_at_fetch
            if current is not None:
                current.trained |= backwards != backwards_at_fetch
                current.last = fetches
            backwards_at_fetch, current = backwards, None

        def forget(optimizer_id: int) -> None:
            nonlocal round_size
            state = states.pop(optimizer_id, None)
            if state and state[1] == rounds:
                round_size = 0

        def count_step(optimizer: Any, args: Any, kwargs: Any) -> None:
            nonlocal optimizers, calls, rounds, turns, round_size, last_state
            nonlocal backwards_at_step, longest, limit, fetches_at_step
            if (self.may_compile and compiling()) or not watcher.enabled:
                return
            state = states.get(id(optimizer))
            if (state[0] if state else 0) == backwards and not has_gradients(optimizer):
                return
            if state is None:
                state = states[id(optimizer)] = [0, 0, 0]
                optimizers += 1
                on_delete(optimizer, forget, id(optimizer))
            calls += 1
            if fetches > fetches_at_step:
                fetches_at_step = fetches
                state[2] += 1
            if not round_size or state[1] == rounds:
                turns += round_size > 1 and state is last_state
                rounds += 1
                round_size = 0
            round_size += 1
            state[0], state[1], last_state = backwards, rounds, state
            pending = backwards - backwards_at_step
            if pending > limit:
                weights.end_window(pending, longest)
                limit, longest = 2 * pending, 0
            elif pending > longest:
                longest = pending
            backwards_at_step = backwards

        def read_counts() -> Counts:
            count_exhausted()
            weights.end_usual(longest)
            is_parallel = switches >= MIN_SWITCHES
            return Counts(
                optimizers=optimizers,
                calls=calls,
                own_batches=sum(batches for _, _, batches in states.values()),
                rounds=rounds,
                turns=turns,
                pending=backwards - backwards_at_step,
                calls_since_fetch=calls - calls_at_fetch,
                threads=len(threads) if is_parallel else min(len(threads), 1),
            )

        self.count_backward: Callable[[tuple[Any, ...], bool], None] = count_backward
        self.count_fetch: Callable[[Any], None] = count_fetch
        self.count_exhausted: Callable[[], None] = count_exhausted
        self.count_step: Callable[[Any, Any, Any], None] = count_step
        self._read_counts = read_counts


def has_gradients(optimizer: Any) -> bool:
    """Return whether an optimizer's step could change a weight. PyTorch makes a step at a learning
    rate of 0 to allocate an optimizer's state before it loads a checkpoint.
    """
    groups = optimizer.param_groups
    if all(isinstance(group.get("lr"), (int, float)) and group["lr"] == 0 for group in groups):
        return False
    return any(weight.grad is not None for group in groups for weight in group["params"])
