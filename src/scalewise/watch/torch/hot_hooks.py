"""The hooks that every step passes, as lean as Python allows.

Between two of them the training has emptied every cache, and then each object
that a hook looks into costs a microsecond. So they call no function of ours and
look into no object of ours: they share a few variables, which ``refresh`` takes
from the objects whenever one of those says that it has changed. What is rare or
takes longer is their owner's.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, is_grad_enabled

from scalewise.watch.guest import Guest
from scalewise.watch.torch.event_buffer import Tape
from scalewise.watch.torch.manual_updates import ByHand
from scalewise.watch.torch.private_api import LOADER

Words = tuple[Any, ...]
Named = dict[str, Any]
"""What a function was called with."""


class Owner(Protocol):
    """Does what is not done in every step."""

    wary: bool
    """Whether something may be compiling: then nothing is told while it does."""
    model: int
    """The id of the model that was trained last, if there is nothing to learn from it."""
    replicated: bool
    """Whether that model is wrapped in DDP."""
    told_batch: bool
    """Whether its own input tells the batch."""
    by_hand: ByHand | None
    """Sees the steps where no optimizer does; nothing once there is one."""

    @property
    def lenient(self) -> bool:
        """Whether a model that is set to evaluate is trained all the same."""

    @property
    def curious(self) -> bool:
        """Whether a loader's batch is looked into all the same."""

    def forward(self, words: Words, named: Named) -> None:
        """Tell that a model is called of which less is known."""

    def look_into(self, batch: Any, iterator: Any) -> int | None:
        """Return the samples of a loader's batch."""

    def begins(self, *, backward: bool = False) -> None:
        """Something begins where no optimizer has told of a step yet."""

    def backwarded(self, loss: Any) -> None:
        """Gradients are there, and no optimizer has told of a step yet."""

    def step_begins(self, *, nested: bool) -> None:
        """The step of an optimizer begins; nested if inside another, or with a closure."""

    def stepped(self, optimizer: Any) -> None:
        """A step is over, and everything is understood."""

    def give_up(self, problem: Exception) -> None:
        """Stop watching; the training goes on."""


@dataclass(frozen=True, slots=True)
class Quick:
    """The hooks, and what keeps them up to date."""

    around_forward: Callable[..., Callable[..., Any]]
    around_backward: Callable[[Callable[..., Any]], Callable[..., Any]]
    around_fetch: Callable[[Callable[[Any], Any]], Callable[[Any], Any]]
    last_gradient: Callable[..., None]
    step_begins: Callable[..., None]
    step_ends: Callable[..., None]
    refresh: Callable[[], None]


def quick(guest: Guest, tape: Tape, owner: Owner) -> Quick:
    """Return the hooks."""
    compiling = torch.compiler.is_compiling
    tell: Callable[[tuple[Any, float]], None] | None = None
    """Takes a word and the time; nothing while nobody listens."""
    now = tape.now
    wary = curious = replicated = told_batch = by_hand = lenient = False
    model = 0
    opened = 0
    """How many steps of optimizers lie inside each other just now."""
    left = 0
    """How many more steps may be kept back."""
    until = 0.0
    """The moment from which steps are no longer kept back."""

    def refresh() -> None:
        nonlocal tell, now, wary, curious, replicated, told_batch, by_hand, lenient, model
        tell, now = tape.tell if guest.on else None, tape.now
        wary, curious = owner.wary, owner.curious
        model, replicated, told_batch = owner.model, owner.replicated, owner.told_batch
        by_hand, lenient = owner.by_hand is not None, owner.lenient

    def around_forward(
        original: Callable[..., Any], models: set[int] | None = None
    ) -> Callable[..., Any]:
        """Return a call of a class with a word before and after it.

        Where gradients are wanted, for these models: its others may be parts of them.
        Where not, for all: a copy that nobody trains is looked at too.
        """

        @functools.wraps(original)
        def watched(*words: Any, **named: Any) -> Any:
            # A compiler that comes here follows the first of these alone.
            if (wary and compiling()) or tell is None:
                return original(*words, **named)
            if (
                id(words[0]) == model
                and told_batch
                and len(words) > 1
                and type(words[1]) is Tensor
                and len(shape := words[1].shape) > 1
                and is_grad_enabled()
                and (lenient or words[0].training)
            ):
                syncing = replicated and words[0].require_backward_grad_sync
                tell((("forward", shape[0], True, syncing, model), now()))
            elif models is None or id(words[0]) in models or not is_grad_enabled():
                try:
                    owner.forward(words, named)
                except Exception as problem:
                    owner.give_up(problem)
                refresh()
            else:
                return original(*words, **named)
            try:
                return original(*words, **named)
            finally:
                if tell is not None:
                    tell((("forwarded",), now()))

        return watched

    def around_backward(original: Callable[..., Any]) -> Callable[..., Any]:
        """Return the call for gradients with a word before and after it."""

        @functools.wraps(original)
        def watched(*words: Any, **named: Any) -> Any:
            if (wary and compiling()) or tell is None:
                return original(*words, **named)
            if by_hand:
                owner.begins(backward=True)
            tell((("backward",), now()))
            try:
                return original(*words, **named)
            finally:
                if tell is not None:
                    tell((("end",), now()))
                    if by_hand:
                        owner.backwarded(words[0] if words else None)

        return watched

    def around_fetch(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return the fetch of a loader's batch with a word before and after it."""

        @functools.wraps(original)
        def watched(iterator: Any) -> Any:
            if tell is None:
                return original(iterator)
            if by_hand:
                owner.begins()
            tell((("fetch", getattr(iterator, LOADER, 0)), now()))
            try:
                batch = original(iterator)
            except BaseException:
                if tell is not None:
                    tell((("exhausted",), now()))
                raise
            samples = None if told_batch and not curious else owner.look_into(batch, iterator)
            if tell is not None:
                tell((("fetched", samples), now()))
            return batch

        return watched

    def last_gradient(*gradients: Any) -> None:
        """What a backward still does is wait for others' gradients."""
        if not (wary and compiling()) and tell is not None:
            tell((("split", "sync"), now()))

    def step_begins(optimizer: Any, words: Words, named: Named) -> None:
        nonlocal opened
        if (wary and compiling()) or tell is None:
            return
        opened += 1
        if opened == 1:
            tell((("begin", "optimizer"), now()))
        given = (*words[1:], *named.values())
        owner.step_begins(nested=opened > 1 or any(each is not None for each in given))

    def step_ends(optimizer: Any, words: Words, named: Named) -> None:
        nonlocal opened, left, until
        if (wary and compiling()) or tell is None:
            return
        if opened > 1:
            opened -= 1
            return
        opened = 0
        moment = now()
        tell((("stepped", id(optimizer)), moment))
        left -= 1
        if left >= 0 and moment < until:
            return
        try:
            tape.understand()
            owner.stepped(optimizer)
        except Exception as problem:
            owner.give_up(problem)
        left, until = tape.room, tape.until
        refresh()

    refresh()
    return Quick(
        around_forward, around_backward, around_fetch, last_gradient, step_begins, step_ends,
        refresh,
    )  # fmt: skip
