"""Tell which forwards a training step uses: others add no samples.

A loop may skip a batch whose loss is not finite, compute a test loss with gradients enabled, or act
with the policy before it trains. If several forwards precede a backward, the autograd graph of the
loss is searched for their results.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from scalewise.watch.torch.sample_counts import Discarded

MAX_FORWARDS = 4096
"""Of a step with more forwards, nothing is said."""
MAX_TENSORS = 8
"""So many tensors of a model's result are examined."""
MAX_NODES = 20_000
"""A search in a larger graph is given up; then all forwards count as used."""
MAX_SEARCHES = 20
"""After so many searches that found all of so many forwards, there are no more of these."""


class Forward:
    """A call of a model with gradients, since the last step of an optimizer."""

    __slots__ = ("batch", "is_used", "nodes")

    def __init__(self, batch: int, result: Any) -> None:
        self.batch = batch
        """How many batches loaders had given before it."""
        self.is_used = False
        self.nodes = sequence_numbers(result)
        """Sequence numbers of the result's autograd nodes."""


class ForwardUses:
    """The forwards since the last optimizer step, and which of them were used."""

    def __init__(self) -> None:
        self.forwards: list[Forward] = []
        self.unused: list[Forward] = []
        """Those of ``forwards`` that no backward has used so far."""
        self._found_all: Counter[int] = Counter()
        """By number of forwards: searches in a row that found that all of them were used."""

    def add(self, batch: int, result: Any) -> None:
        """Note a forward."""
        if len(self.forwards) < MAX_FORWARDS:
            forward = Forward(batch, result)
            self.forwards.append(forward)
            self.unused.append(forward)

    def clear(self) -> None:
        """Forget all forwards: an optimizer has finished its step."""
        self.forwards.clear()
        self.unused.clear()

    def backward(self, loss: Any) -> None:
        """Decide which forwards a backward uses."""
        unused = self.unused
        count = len(unused)
        # With a loader, only whole batches are skipped: calls with one batch are not told apart.
        is_clear = count < 2 or unused[0].batch == unused[-1].batch > 0
        if is_clear or self._found_all[count] >= MAX_SEARCHES:
            used = unused
        else:
            used = find_used(unused, [loss])
            self._found_all[count] = self._found_all[count] + 1 if len(used) == count else 0
        for forward in used:
            forward.is_used = True
        unused[:] = [forward for forward in unused if not forward.is_used]

    def differentiate(self, outputs: Any, gradients: Any) -> None:
        """Let gradients of ``torch.autograd.grad`` that have a graph stand for the forwards that
        they were computed from.
        """
        if nodes := sequence_numbers(gradients):
            for forward in find_used(self.forwards, find_tensors(outputs)):
                forward.nodes |= nodes

    def discarded(self, exhausted_at: int) -> tuple[Discarded, ...]:
        """Return the forwards that were not used, when an optimizer's step ends; if none was, the
        gradients were computed in another way. A batch is skipped if none of its forwards was used,
        and one with a later batch was, or the loader has no later one: ``exhausted_at`` is how many
        batches loaders had given when one last had no more.
        """
        batches = {forward.batch for forward in self.forwards if forward.is_used}
        if not self.unused or not batches:
            return ()
        last = max(*batches, exhausted_at + 1)
        return tuple(
            (index, forward.batch > 0)
            for index, forward in enumerate(self.forwards)
            if not forward.is_used
            and (not forward.batch or (forward.batch < last and forward.batch not in batches))
        )


def find_used(forwards: list[Forward], losses: Iterable[Any]) -> list[Forward]:
    """Return the forwards whose results lead to a loss; all of them if that is unclear."""
    targets = {node for forward in forwards for node in forward.nodes}
    unclear = [forward for forward in forwards if not forward.nodes]
    if not targets or -1 in targets:
        return forwards
    first, reached, visited = min(targets), set(), set()
    stack = [node for loss in losses if (node := getattr(loss, "grad_fn", None)) is not None]
    while stack:
        node = stack.pop()
        number = sequence_number(node)
        if node in visited or number < first:  # A graph leads from later nodes to earlier ones.
            continue
        visited.add(node)
        if len(visited) > MAX_NODES:
            return forwards
        reached.add(number)
        stack += [earlier for earlier, _ in node.next_functions if earlier is not None]
    return [*unclear, *(forward for forward in forwards if forward.nodes & reached)]


def sequence_number(node: Any) -> int:
    """Return a number that grows with each autograd node; -1 if this PyTorch has none."""
    return int(getattr(node, "_sequence_nr", lambda: -1)())


def sequence_numbers(result: Any) -> set[int]:
    """Return the numbers of the autograd nodes of the first tensors in a model's result."""
    if isinstance(result, torch.Tensor):  # The usual case, in every step.
        return set() if result.grad_fn is None else {sequence_number(result.grad_fn)}
    nodes = (tensor.grad_fn for tensor, _ in zip(find_tensors(result), range(MAX_TENSORS)))
    return {sequence_number(node) for node in nodes if node is not None}


def find_tensors(values: Any, depth: int = 3) -> Iterator[torch.Tensor]:
    """Yield the tensors in containers and attributes."""
    if isinstance(values, torch.Tensor):
        yield values
    elif depth:
        if isinstance(values, Mapping):
            values = values.values()
        elif not isinstance(values, (list, tuple)):
            values = getattr(values, "__dict__", {}).values()
        for value in values:
            yield from find_tensors(value, depth - 1)
