"""Tell which forwards a training step uses: others add no samples.

A loop may skip a batch whose loss is not finite, compute a test loss with gradients enabled, or act
with the policy before it trains. If several forwards precede a backward, the autograd graph of the
loss is searched for nodes that these forwards made: PyTorch numbers the nodes as they are made.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from scalewise.watch.torch.private_api import sequence_number
from scalewise.watch.torch.sample_counts import Discarded

MAX_FORWARDS = 4096
"""Of a step with more forwards, nothing is said."""
MAX_TENSORS = 8
"""So many gradients of ``torch.autograd.grad`` are examined."""
MAX_NODES = 20_000
"""A search in a larger graph is given up; then all forwards count as used."""
MAX_SEARCHES = 20
"""After so many searches that found all of so many forwards, there are no more of these."""

Forward = tuple[int, int, int]
"""A call of a model with gradients: how many batches loaders had given before it; the number of the
next autograd node when it began; and when it ended. A plain tuple, since one is made in each step.
"""


class ForwardUses:
    """The forwards since the last optimizer step, and which of them were used. The hooks add
    forwards to ``forwards`` and ``unused``, and handle a single one themselves.
    """

    def __init__(self) -> None:
        self.forwards: list[Forward] = []
        self.unused: list[Forward] = []
        """Those of ``forwards`` that no backward has used so far."""
        self.gradient_nodes: dict[Forward, set[int]] = {}
        """By forward: the numbers of nodes of gradients that were computed from it."""
        self._found_all: Counter[int] = Counter()
        """By number of forwards: searches in a row that found that all of them were used."""

    def clear(self) -> None:
        """Forget all forwards: an optimizer has finished its step."""
        self.forwards.clear()
        self.unused.clear()
        self.gradient_nodes.clear()

    def backward(self, loss: Any) -> None:
        """Decide which forwards a backward uses."""
        unused = self.unused
        count = len(unused)
        # With a loader, only whole batches are skipped: calls with one batch are not told apart.
        is_clear = count < 2 or unused[0][0] == unused[-1][0] > 0
        if is_clear or self._found_all[count] >= MAX_SEARCHES:
            unused.clear()
            return
        used = self._find_used(unused, [loss])
        self._found_all[count] = self._found_all[count] + 1 if len(used) == count else 0
        unused[:] = [forward for forward in unused if forward not in used]

    def differentiate(self, outputs: Any, gradients: Any) -> None:
        """Let gradients of ``torch.autograd.grad`` that have a graph stand for the forwards that
        they were computed from.
        """
        tensors = (tensor for tensor, _ in zip(find_tensors(gradients), range(MAX_TENSORS)))
        nodes = {sequence_number(tensor.grad_fn) for tensor in tensors if tensor.grad_fn}
        if nodes:
            for forward in self._find_used(self.forwards, find_tensors(outputs)):
                self.gradient_nodes.setdefault(forward, set()).update(nodes)

    def discarded(self, exhausted_at: int) -> tuple[Discarded, ...]:
        """Return the forwards that were not used, when an optimizer's step ends; if none was, the
        gradients were computed in another way. A batch is skipped if none of its forwards was used,
        and one with a later batch was, or the loader has no later one: ``exhausted_at`` is how many
        batches loaders had given when one last had no more.
        """
        unused = set(self.unused)
        batches = {forward[0] for forward in self.forwards if forward not in unused}
        if not unused or not batches:
            return ()
        last = max(*batches, exhausted_at + 1)
        return tuple(
            (index, batch > 0)
            for index, (batch, begin, end) in enumerate(self.forwards)
            if (batch, begin, end) in unused
            and (not batch or (batch < last and batch not in batches))
        )

    def _find_used(self, forwards: list[Forward], losses: Iterable[Any]) -> list[Forward]:
        """Return the forwards from which losses were computed; all of them if that is unclear."""
        clear = [(begin, end) for _, begin, end in forwards if begin < end]
        if not clear:
            return forwards
        first_begin, first_end = min(clear)
        reached, visited = set(), set()
        stack = [node for loss in losses if (node := getattr(loss, "grad_fn", None)) is not None]
        while stack:
            node = stack.pop()
            number = sequence_number(node)
            if node in visited or number < first_begin:  # Nodes lead to earlier ones.
                continue
            visited.add(node)
            if len(visited) > MAX_NODES:
                return forwards
            reached.add(number)
            if number >= first_end:
                stack += [earlier for earlier, _ in node.next_functions if earlier is not None]
        numbers = sorted(reached)
        return [
            forward
            for forward in forwards
            if (begin := forward[1]) >= (end := forward[2])
            or bisect_left(numbers, begin) < bisect_left(numbers, end)
            or reached & self.gradient_nodes.get(forward, set())
        ]


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
